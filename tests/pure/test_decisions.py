"""Laws of the CPU suppress decision."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy import DEFAULT, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.resources.node_load import cpu_list, node_reserved
from slacktide.streams.decisions.suppress.cpu_suppress import Decision, decide, looser
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import QUOTA_US_MIN

ON = policy_of(Colocation(), ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"))
CAPACITY = Resources(cpu_milli=8_000, mem_bytes=16 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
LS = Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
BE = Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort")

eighths = st.integers(0, 64).map(lambda number: 125 * number)
"""Millicores that are exact in cores, so that sums are, whatever their order."""
quotas = st.none() | st.integers(QUOTA_US_MIN, 1_000_000)


def sample(ls_milli: int = 500, be_milli: int = 1_000, quota_us: int | None = None, **more) -> NodeSample:
    fields = {
        "node": "node-1",
        "boot_id": "000000000001-00000000",
        "seq": 1,
        "observed_ms": 1_000,
        "interval_ms": 1_000,
        "policy_version": ON.version,
        "facts_revision": "f",
        "pods_revision": "p",
        "use": NodeUse(cpu_milli=ls_milli + be_milli + 250),
        "pod_use": [
            PodUse(uid="ls", cpu_milli=ls_milli),
            PodUse(uid="be", cpu_milli=be_milli, best_effort_group=True),
        ],
        "limits": Limits(be_cfs_quota_us=quota_us),
    }
    return NodeSample(**fields | more)


def decided(taken: NodeSample, **more) -> Decision:
    return decide(taken, **{"facts": FACTS, "pods": [LS, BE], "policy": ON} | more)


def rate(limits: Limits | None) -> float:
    assert limits is not None
    return float("inf") if limits.be_cfs_quota_us is None else limits.be_cfs_quota_us


@given(st.integers(0, 8_000), st.integers(0, 8_000), st.integers(0, 8_000), quotas)
def test_more_latency_sensitive_load_never_raises_the_limit(low: int, more: int, be: int, quota_us: int | None) -> None:
    calm = decided(sample(ls_milli=low, be_milli=be, quota_us=quota_us))
    busy = decided(sample(ls_milli=low + more, be_milli=be, quota_us=quota_us))

    assert rate(busy.limits) <= max(rate(calm.limits), quota_us or 0)


@given(st.integers(0, 20_000), st.integers(0, 8_000), quotas)
def test_a_raise_is_at_most_a_tenth_of_the_node(ls: int, be: int, quota_us: int | None) -> None:
    decision = decided(sample(ls_milli=ls, be_milli=be, quota_us=quota_us))

    assert rate(decision.limits) >= QUOTA_US_MIN
    assert quota_us is None or rate(decision.limits) <= quota_us + 80_000


@given(st.integers(0, 899), quotas, st.integers(0, 8_000))
def test_a_raise_waits_900_ms_after_the_last_and_a_cut_never_waits(since: int, quota_us: int | None, ls: int) -> None:
    free = decided(sample(ls_milli=ls, quota_us=quota_us))
    spaced = decided(sample(ls_milli=ls, quota_us=quota_us, since_raise_ms=since))

    if free.limits is not None and looser(free.limits, Limits(be_cfs_quota_us=quota_us)):
        assert (spaced.answer, spaced.bound) == ("keep", "raise_spaced")
    else:
        assert spaced == free


@given(eighths, eighths, quotas)
def test_a_rise_of_the_last_moment_counts_like_use_of_the_whole_sample(
    ls: int, rise: int, quota_us: int | None
) -> None:
    """A sample that a rise asked for has rates that are mostly of before it."""
    diluted = decided(sample(ls_milli=ls, quota_us=quota_us, ls_lately_cpu_milli=ls + rise))
    whole = decided(sample(ls_milli=ls + rise, quota_us=quota_us))

    assert (diluted.limits, diluted.bound, diluted.terms) == (whole.limits, whole.bound, whole.terms)


@given(st.integers(0, 8_000), st.integers(0, 8_000))
def test_a_moment_of_less_use_than_the_sample_saw_changes_nothing(ls: int, lately: int) -> None:
    assert decided(sample(ls_milli=ls, ls_lately_cpu_milli=min(ls, lately))) == decided(sample(ls_milli=ls))


@pytest.mark.parametrize("be_milli", [0, 4_000, 8_000])
def test_what_best_effort_pods_use_does_not_change_their_allowance(be_milli: int) -> None:
    assert decided(sample(be_milli=be_milli)).limits == Limits(be_cfs_quota_us=(5_200 - 500 - 250) * 100)


def test_a_pod_not_in_the_list_counts_by_where_its_cgroup_lies() -> None:
    listed = decided(sample())
    only_ls_listed = decided(sample(), pods=[LS])

    assert only_ls_listed.limits == listed.limits


def test_suppress_off_lifts_the_limit_and_then_keeps() -> None:
    assert decided(sample(quota_us=50_000), policy=DEFAULT).limits == Limits(be_cfs_quota_us=None)
    assert decided(sample(quota_us=None), policy=DEFAULT).answer == "keep"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"limits": None}, "the limit in force is unknown", id="limit unreadable"),
        pytest.param({"use": NodeUse()}, "the node's CPU use is unknown", id="first sample has no rate"),
    ],
)
def test_what_is_unknown_is_skipped_with_its_reason(more: dict, reason: str) -> None:
    decision = decided(msgspec.structs.replace(sample(), **more))

    assert (decision.answer, decision.limits, decision.reason) == ("skipped", None, reason)


def test_no_pods_no_change() -> None:
    assert decided(sample(quota_us=2_000), pods=[]).answer == "keep"


def test_a_quota_of_another_period_is_compared_by_its_rate() -> None:
    """222.5 ms in each 50 ms are what 445 ms in each 100 ms are."""
    odd = Limits(be_cfs_quota_us=222_500, be_cfs_period_us=50_000)

    assert decided(msgspec.structs.replace(sample(), limits=odd)).answer == "keep"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,6", [0, 1, 2, 3, 6]), ("", []), (" 1 , 0 ", [0, 1]), ("3-1", None), ("a", None), ("1-", None), ("-", None)],
)
def test_cpu_lists(text: str, cpus: list[int] | None) -> None:
    assert cpu_list(text) == cpus


def test_a_reserved_cpu_list_replaces_the_amount_and_a_broken_one_voids_the_annotation() -> None:
    reserving = msgspec.structs.replace(FACTS, reserved=Resources(cpu_milli=4_000, mem_bytes=1 << 30))

    assert node_reserved(msgspec.structs.replace(reserving, reserved_cpus="0-1")).cpu_milli == 2_000
    assert node_reserved(msgspec.structs.replace(reserving, reserved_cpus="x")) == Resources(cpu_milli=0, mem_bytes=0)
