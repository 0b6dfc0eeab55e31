"""The cap that follows from what was learned of a node's services: by the policy, on offers, limits and in explain."""

from typing import Any

import msgspec
import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Colocation, ResourceThreshold, policy_of
from slacktide.schemas.policy.effective import cap_in_force_pct, colocation_on, effective, learned_cap_pct
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import ALLOCATABLE, COMMAND
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.decisions.suppress.cpu_suppress import capped
from testbed.chains import Chain
from testbed.samples import FACTS

SENSITIVE = msgspec.structs.replace(FACTS, slope_permille=2_000, slope_of="shop/web")
"""e^2 times as slow beside a node full of best-effort work, and 25% slower at 11% of it."""
THRESHOLD = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=95)


def chain(learned_caps: str, **colocation: Any) -> Chain:
    policy = policy_of(Colocation(enable=True, learned_caps=learned_caps, **colocation), THRESHOLD)
    return Chain(policy, FACTS)


def offered(it: Chain) -> NodeAllocatable:
    newest = [one for one in it.records if one.topic == ALLOCATABLE.name][-1]
    return decode(newest.value, NodeAllocatable)


def limits(it: Chain) -> Limits:
    commands = (decode(one.value, NodeCommand) for one in it.records if one.topic == COMMAND.name and one.key)
    return [one.hold[0].limits for one in commands if one.answer == "set"][-1]


@pytest.mark.parametrize(
    ("slope", "budget", "cap"),
    [(0, 25, None), (200, 25, None), (223, 25, None), (224, 25, 99), (2_000, 25, 11), (2_000, 100, 34), (10**6, 25, 0)],
)
def test_the_cap_is_the_share_at_which_the_slope_uses_up_the_budget(slope: int, budget: int, cap: int | None) -> None:
    facts = msgspec.structs.replace(FACTS, slope_permille=slope)
    assert learned_cap_pct(Colocation(interference_budget_pct=budget), facts) == cap


@pytest.mark.parametrize(("learned_caps", "own", "found"), [
    ("off", None, None), ("shadow", None, None), ("on", None, 11), ("on", 50, 11), ("on", 5, 5), ("shadow", 50, 50),
])  # fmt: skip
def test_only_a_cap_that_is_on_and_lower_than_the_policys_own_counts(
    learned_caps: str, own: int | None, found: int | None
) -> None:
    policy = policy_of(Colocation(enable=True, learned_caps=learned_caps, batch_cpu_threshold_pct=own), THRESHOLD)

    assert colocation_on(policy, SENSITIVE).batch_cpu_threshold_pct == found
    told = effective(policy, SENSITIVE)
    assert told.colocation == colocation_on(policy, SENSITIVE)
    is_learned = str(told.source("colocation.batch_cpu_threshold_pct")) == "learned of shop/web"
    assert is_learned == (found != own)
    assert (cap_in_force_pct(policy.colocation, SENSITIVE) is not None) == (learned_caps == "on")


def test_a_node_offers_and_allows_what_its_services_bear_as_soon_as_its_agent_knows_the_slope() -> None:
    """The inventory record knows no slope: it comes with the facts of the node's own samples, and goes with them."""
    it = chain("on")
    it.run(1, 10)
    before, capacity = offered(it), FACTS.capacity.cpu_milli or 0
    assert (before.batch_cpu_milli or 0) > capacity * 11 // 100

    it.facts = SENSITIVE
    it.run(11, 20)
    assert offered(it).batch_cpu_milli == capacity * 11 // 100
    assert limits(it) == Limits(be_cfs_quota_us=capacity * 11 // 100 * 100)

    it.facts = FACTS
    it.run(21, 30)
    assert offered(it).batch_cpu_milli == before.batch_cpu_milli
    assert (limits(it).be_cfs_quota_us or 0) > capacity * 11 // 100 * 100


def test_in_shadow_nothing_is_capped_and_explain_says_what_would_be() -> None:
    it = chain("shadow")
    it.facts = SENSITIVE
    now_ms = it.run(1, 10)
    assert (offered(it).batch_cpu_milli or 0) > (FACTS.capacity.cpu_milli or 0) * 11 // 100

    assert cap_finding(it, now_ms) == (
        "best-effort pods should use at most 11% of the node's CPU: beyond it, shop/web is predicted to slow down by "
        "more than 25% (learnedCaps is shadow: not applied)"
    )


def test_explain_names_the_service_that_a_cap_is_learned_of() -> None:
    it = chain("on")
    it.facts = SENSITIVE
    now_ms = it.run(1, 10)

    assert cap_finding(it, now_ms) == (
        "best-effort pods may use at most 11% of the node's CPU: beyond it, shop/web is predicted to slow down by "
        "more than 25%"
    )
    capped = next(one for one in explained(it, now_ms) if one.name == "batch.capped")
    assert "by what was learned of shop/web" in capped.text


def test_without_colocation_nothing_is_capped() -> None:
    policy = policy_of(Colocation(enable=False, learned_caps="on"), THRESHOLD)
    assert cap_in_force_pct(policy.colocation, SENSITIVE) is None
    it = Chain(policy, FACTS)
    it.facts = SENSITIVE
    assert cap_finding(it, it.run(1, 10)) == ""


@pytest.mark.parametrize("quota_us", [7_000, 14_000, 28_000, 55_000, 170_001])
def test_a_quota_at_the_cap_is_not_changed(quota_us: int) -> None:
    limits = Limits(be_cfs_quota_us=quota_us)
    assert capped(limits, quota_us) is limits
    assert capped(limits, quota_us - 1) == Limits(be_cfs_quota_us=quota_us - 1)
    assert capped(Limits(be_cfs_quota_us=None), quota_us) == limits


@pytest.mark.parametrize("facts", [FACTS, msgspec.structs.replace(SENSITIVE, slope_permille=100)])
def test_nothing_is_said_where_no_service_minds(facts: NodeFacts) -> None:
    it = chain("on")
    it.facts = facts
    assert cap_finding(it, it.run(1, 10)) == ""


def explained(it: Chain, now_ms: int) -> list[Any]:
    return list(explain_node(node_log(it.node, it.records), now_ms).findings)


def cap_finding(it: Chain, now_ms: int) -> str:
    return "; ".join(one.text for one in explained(it, now_ms) if one.name == "node.learned-cap")
