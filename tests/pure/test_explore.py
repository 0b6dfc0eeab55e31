"""Nodes that are held below their learned cap for a while, so that more is learned of their services."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Colocation, Policy, ResourceThreshold, policy_of
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.policy.idle import unused
from slacktide.schemas.sample import BeCpu, BeCpuWindow, EvictState, Limits, NodeSample
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.decisions.evict.node_evict import evictions
from slacktide.streams.decisions.suppress.cpu_suppress import decide, looser
from slacktide.streams.decisions.suppress.learned_cap import (
    EXPLORE,
    EXPLORED_PART,
    RAISED_MS,
    SLOT_MS,
    SLOTS,
    explores,
    slot_of,
)
from slacktide.streams.learning.estimate import fit_node
from slacktide.streams.learning.sums import Point, added, begun, point_of
from testbed.chains import Chain
from testbed.policies import policy_from
from testbed.samples import BATCH, FACTS, PODS, SERVICE, START_MS, sample
from testbed.service_minutes import MINUTE_MS, minute

CYCLE_MS = SLOTS * SLOT_MS
EXPLORER = replace(FACTS, name="node-5", slope_permille=2_000, slope_of="shop/web")
"""The first 20 minutes of all samples are its slot. Its cap is 11% of 4 CPUs, 44 ms in 100."""
BEGIN_MS = START_MS
SAFE = ResourceThreshold(
    enable=True,
    cpu_suppress_policy="cfsQuota",
    cpu_suppress_threshold_pct=95,
    cpu_evict_be_satisfaction_lower_pct=40,
    cpu_evict_be_satisfaction_upper_pct=80,
)
ASKING = replace(BATCH, requests=replace(BATCH.requests, batch_cpu_milli=440))


def policy(threshold: ResourceThreshold = SAFE, **given: Any) -> Policy:
    return policy_of(Colocation(**{"enable": True, "learned_caps": "on", "explore": True} | given), threshold)


def decided(policy: Policy, facts: NodeFacts = EXPLORER, **given: Any) -> Limits:
    found = decide(sample(1, facts.name, **{"observed_ms": BEGIN_MS} | given), facts, PODS, policy).limits
    assert found is not None
    return found


def starved(at_ms: int, limit_milli: int, request_milli: int = 440) -> NodeSample:
    """Best-effort pods that use all that they may, which is less than they requested."""
    be = BeCpu(usage_milli=limit_milli, request_milli=request_milli, limit_milli=limit_milli)
    window = BeCpuWindow(average=be, current=be, samples=60, interval_s=1)
    return sample(1, EXPLORER.name, observed_ms=at_ms, evict=EvictState(be_cpu=window))


@pytest.mark.parametrize("count", [1_000, 10_000])
@pytest.mark.parametrize("name", ["node-{}", "worker-{:05}", "ip-10-0-{}.eu-west-1.compute.internal"])
def test_of_many_nodes_never_more_than_2_percent_explore(count: int, name: str) -> None:
    """And never fewer than none: over a cycle each node explores once."""
    names = [name.format(number) for number in range(count)]
    at_once = Counter(slot_of(one) for one in names)
    assert max(at_once.values()) <= count * 2 // 100
    assert at_once.total() == count


@given(st.text(min_size=1, max_size=20), st.integers(0, 10**13))
def test_a_node_explores_once_in_a_cycle_and_only_in_its_slot(name: str, at_ms: int) -> None:
    slot = slot_of(name)
    assert explores(slot, at_ms) == (at_ms // SLOT_MS % SLOTS == slot) == explores(slot, at_ms + CYCLE_MS)


@given(
    at_ms=st.integers(-2, SLOT_MS + 2),
    quota_us=st.none() | st.integers(0, 500_000),
    minimum=st.none() | st.integers(0, 100),
    slope=st.integers(0, 5_000),
)
def test_exploring_never_allows_more_and_never_less_than_the_minimum(
    at_ms: int, quota_us: int | None, minimum: int | None, slope: int
) -> None:
    threshold, facts = replace(SAFE, cpu_suppress_min_pct=minimum), replace(EXPLORER, slope_permille=slope)
    given: dict[str, Any] = {"observed_ms": BEGIN_MS + at_ms, "limits": Limits(be_cfs_quota_us=quota_us)}
    plain = decided(policy(threshold, explore=False), facts, **given)
    found = decided(policy(threshold), facts, **given)
    assert not looser(found, plain)
    least_us = 4_000 * (minimum or 0)
    assert found == plain or (found.be_cfs_quota_us or 0) >= least_us
    if not 0 <= at_ms < SLOT_MS:
        assert found == plain


def test_in_its_slot_a_node_leaves_a_quarter_of_its_cap_and_says_so() -> None:
    taken = sample(1, EXPLORER.name, observed_ms=BEGIN_MS)
    found = decide(taken, EXPLORER, PODS, policy())
    assert (found.limits, found.bound) == (Limits(be_cfs_quota_us=11_000), EXPLORE)
    assert (found.terms["cap_us"], found.terms["explored_us"]) == (44_000, 11_000)
    after = decided(policy(), observed_ms=BEGIN_MS + SLOT_MS)
    assert after == Limits(be_cfs_quota_us=44_000)


@pytest.mark.parametrize("given", [{"explore": False}, {"learned_caps": "shadow"}, {"enable": False}])
def test_nothing_is_explored_unless_caps_are_on_and_the_policy_says_so(given: dict[str, Any]) -> None:
    assert decided(policy(**given)) == decided(policy(**given | {"explore": False}))
    assert not Colocation().explore


@pytest.mark.parametrize("slope", [0, 200])
def test_without_a_cap_nothing_is_explored(slope: int) -> None:
    facts = replace(EXPLORER, slope_permille=slope)
    assert decided(policy(), facts) == decided(policy(explore=False), facts)


def test_what_is_offered_stays_while_a_node_explores() -> None:
    assert colocation_on(policy(), EXPLORER) == replace(colocation_on(policy(explore=False), EXPLORER), explore=True)


@pytest.mark.parametrize("window_s", [None, 60, 86_400])
def test_no_pod_is_evicted_for_what_exploring_took(window_s: int | None) -> None:
    """From the slot's begin until no average shows it, also if the slope has gone meanwhile."""
    threshold = replace(SAFE, cpu_evict_time_window_s=window_s)
    until_ms = SLOT_MS + RAISED_MS + min((window_s or 1) * 1_000, 3_600_000)
    short, bare = starved(BEGIN_MS, 110, 440), replace(EXPLORER, slope_permille=0)
    for at_ms in (0, SLOT_MS, until_ms - 1):
        for facts in (EXPLORER, bare):
            assert by_satisfaction(replace(short, observed_ms=BEGIN_MS + at_ms), facts, policy(threshold)) == []
    again = replace(short, observed_ms=BEGIN_MS + until_ms)
    sampled = window_s != 86_400  # of a day, a minute is too little
    assert by_satisfaction(again, EXPLORER, policy(threshold)) == ["BECPUEvict"] * sampled
    for off in ({"explore": False}, {"learned_caps": "shadow"}, {"enable": False}):
        assert by_satisfaction(short, EXPLORER, policy(threshold, **off)) == ["BECPUEvict"] * sampled


def by_satisfaction(taken: NodeSample, facts: NodeFacts, policy: Policy) -> list[str]:
    return [one.rule for one in evictions(taken, facts, [SERVICE, ASKING], policy)]


def test_explain_says_until_when_a_node_explores() -> None:
    it = Chain(policy(), EXPLORER)
    now_ms = it.run(1, 10)
    [text] = [one.text for one in explain_node(node_log(it.node, it.records), now_ms).findings
              if one.name == "node.learned-cap"]  # fmt: skip
    assert text.endswith("more than 25%; the node explores: until 2027-01-15T08:20:00Z they may use at most 110m"), text


def test_lint_names_an_exploring_that_has_no_effect() -> None:
    [found] = [one for one in unused(policy_said(learnedCaps="shadow")) if one.field == "explore"]
    assert found.because == "learnedCaps is shadow, not on"
    assert [one for one in unused(policy_said(learnedCaps="on")) if one.field == "explore"] == []


def policy_said(**given: Any) -> Policy:
    return policy_from(colocation={"enable": True, "explore": True} | given)


@pytest.mark.parametrize(("cap_pct", "explore", "shows"), [(16, True, True), (12, True, False), (16, False, False)])
def test_a_node_whose_cap_is_always_used_shows_the_slope_only_if_it_explored(
    cap_pct: int,
    explore: bool,  # noqa: FBT001
    shows: bool,  # noqa: FBT001
) -> None:
    """And only if the cap leaves enough room to explore."""
    dice, sums = random.Random(1), None
    for number in range(-600, 60):
        at_ms = BEGIN_MS + number * MINUTE_MS
        part = EXPLORED_PART if explore and explores(slot_of(EXPLORER.name), at_ms) else 1
        x = cap_pct / 100 / part
        point = point_of(minute(at_ms=at_ms, x=x, y=0.3 + 1.4 * x, z=dice.gauss(0.3, 0.02)))
        assert isinstance(point, Point)
        sums = begun(EXPLORER.name, point, at_ms) if sums is None else added(sums, point, at_ms)
    assert sums is not None
    found = fit_node(sums, sums.until_ms)
    assert (found is not None) == shows
    assert found is None or found.slope == pytest.approx(1.4, rel=0.01)
