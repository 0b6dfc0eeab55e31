"""The CPU suppress decision, by quota, by CPU set and by pressure: what it comes to in examples, and its laws."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources
from slacktide.schemas.policy import DEFAULT, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, LsPressure, NodeSample, NodeUse, PodUse, PressureGate, PressureLook
from slacktide.streams.decisions.resources.node_load import cpu_list, node_reserved
from slacktide.streams.decisions.suppress.cpu_suppress import Decision, decide, looser, quota_rate, tighter
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import ANNOTATION_SYSTEM_QOS
from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN
from testbed import samples
from testbed.stories import each_story, story

LS = Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
BE = Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort")
PODS = [LS, BE]
STALLED = PressureLook(span_us=100_000, ls_cpu_us=100_000, be_cpu_us=500_000, idle_us=0, cpu_stall_us=90_000)
CALM = msgspec.structs.replace(STALLED, cpu_stall_us=0)
LOOKS = {"stalled": STALLED, "calm": CALM}


def node_of(cpus: int, *, placed: bool = True, **changes: Any) -> NodeFacts:
    """``placed``: it is known where its CPUs are."""
    size = Resources(cpu_milli=cpus * 1_000, mem_bytes=16 << 30)
    places = [Processor(cpu=cpu, core=cpu // 2, socket=0, numa_node=0) for cpu in range(cpus if placed else 0)]
    return NodeFacts(name="node-1", **{"capacity": size, "allocatable": size, "processors": places} | changes)


CPUS = 20
ALL = list(range(CPUS))
NARROW, WIDE = node_of(8), node_of(CPUS)


def policy(**threshold: Any) -> Policy:
    return policy_of(Colocation(), ResourceThreshold(enable=True, **threshold))


def by(signal: str) -> Policy:
    return policy(cpu_suppress_policy="cfsQuota", cpu_suppress_signal=signal)


ON = policy(cpu_suppress_policy="cfsQuota")


def sample(ls_milli: int, be_milli: int = 1_000, limits: Limits | None = None, **more: Any) -> NodeSample:
    """On a node whose system uses a quarter of a CPU; without limits said, there are none."""
    uses = [PodUse(uid="ls", cpu_milli=ls_milli), PodUse(uid="be", cpu_milli=be_milli, best_effort_group=True)]
    fields = {"use": NodeUse(cpu_milli=ls_milli + be_milli + 250), "pod_use": uses, "since_raise_ms": None}
    return samples.sample(1, **fields | {"limits": limits or Limits(be_cfs_quota_us=None)} | more)


def pressed(*looks: PressureLook) -> LsPressure:
    return LsPressure(gate=PressureGate(), looks=list(looks))


class Case:
    """A node, a policy and a sample, by what of them matters."""

    def __init__(self, cpus: int = 8, ls: int = 1_000, be: int = 1_000, **given: Any) -> None:
        self.policy = DEFAULT if given.get("policy") == "off" else policy(**given.get("policy", {}))
        system = (
            {ANNOTATION_SYSTEM_QOS: msgspec.json.encode(given["system_qos"]).decode()} if "system_qos" in given else {}
        )
        self.facts = node_of(cpus, placed=given.get("placed", True), annotations=system, **given.get("node", {}))
        others = [
            msgspec.structs.replace(LS, uid=f"other-{number}", **one)
            for number, one in enumerate(given.get("others", []))
        ]
        self.pods = [pod for pod in [*PODS, *others] if pod.uid in given.get("listed", [pod.uid])]
        cpuset = list(range(cpus)) if given.get("cpuset") == "all" else given.get("cpuset")
        held = Limits(
            be_cfs_quota_us=given.get("quota"), be_cfs_period_us=given.get("period", 100_000), be_cpuset=cpuset
        )
        self.sample = sample(ls, be, held, since_raise_ms=given.get("since_raise"))
        self.change(ls_pressure=pressed(*(LOOKS[look] for look in given["looks"])) if "looks" in given else None)

    def change(self, **changes: Any) -> None:
        self.sample = msgspec.structs.replace(self.sample, **changes)

    def lose_limits(self) -> None:
        self.change(limits=None)

    def lose_use(self) -> None:
        self.change(use=NodeUse())

    def obey(self) -> None:
        """The limits that were decided hold."""
        self.change(limits=self.found.limits)

    def calm(self) -> None:
        self.change(ls_pressure=pressed(CALM))

    def decide(self) -> None:
        self.found = decide(self.sample, self.facts, self.pods, self.policy)

    def state(self) -> dict[str, object]:
        if not hasattr(self, "found"):
            return {}
        found, limits = self.found, self.found.limits
        return {
            "decision": " ".join(filter(None, [found.answer, found.bound, found.reason])),
            "limits": limits and (limits.be_cfs_quota_us, limits.be_cfs_period_us, limits.be_cpuset),
            "terms": " ".join(f"{name} {value}" for name, value in found.terms.items()),
        }


@each_story("decisions")
def test_what_is_decided(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Case(**given), steps) == snapshot


quotas = st.none() | st.integers(QUOTA_US_MIN, 1_000_000)
eighths = st.integers(0, 64).map(lambda number: 125 * number)
"""Millicores that are exact in cores, so that sums are, whatever their order."""
PLAIN = node_of(8, placed=False)


def decided(ls_milli: int = 500, be_milli: int = 1_000, quota_us: int | None = None, **more: Any) -> Decision:
    """By quota."""
    return decide(sample(ls_milli, be_milli, Limits(be_cfs_quota_us=quota_us), **more), PLAIN, PODS, ON)


def rate(limits: Limits | None) -> float:
    assert limits is not None
    return float("inf") if limits.be_cfs_quota_us is None else limits.be_cfs_quota_us


@given(st.integers(0, 8_000), st.integers(0, 8_000), st.integers(0, 8_000), quotas)
def test_more_latency_sensitive_load_never_raises_the_limit(low: int, more: int, be: int, quota_us: int | None) -> None:
    calm, busy = (decided(ls, be, quota_us) for ls in (low, low + more))

    assert rate(busy.limits) <= max(rate(calm.limits), quota_us or 0)


@given(st.integers(0, 20_000), st.integers(0, 8_000), quotas)
def test_a_raise_is_at_most_a_tenth_of_the_node(ls: int, be: int, quota_us: int | None) -> None:
    decision = decided(ls, be, quota_us)

    assert rate(decision.limits) >= QUOTA_US_MIN
    assert quota_us is None or rate(decision.limits) <= quota_us + 80_000


@given(st.integers(0, 899), quotas, st.integers(0, 8_000))
def test_a_raise_waits_900_ms_after_the_last_and_a_cut_never_waits(since: int, quota_us: int | None, ls: int) -> None:
    free = decided(ls, quota_us=quota_us)
    spaced = decided(ls, quota_us=quota_us, since_raise_ms=since)

    if free.limits is not None and looser(free.limits, Limits(be_cfs_quota_us=quota_us)):
        assert (spaced.answer, spaced.bound) == ("keep", "raise_spaced")
    else:
        assert spaced == free


@given(eighths, eighths, quotas)
def test_a_rise_of_the_last_moment_counts_like_use_of_the_whole_sample(
    ls: int, rise: int, quota_us: int | None
) -> None:
    """A sample that a rise asked for has rates that are mostly of before it."""
    diluted = decided(ls, quota_us=quota_us, ls_lately_cpu_milli=ls + rise)
    whole = decided(ls + rise, quota_us=quota_us)

    assert (diluted.limits, diluted.bound, diluted.terms) == (whole.limits, whole.bound, whole.terms)


@given(st.integers(0, 8_000), st.integers(0, 8_000))
def test_a_moment_of_less_use_than_the_sample_saw_changes_nothing(ls: int, lately: int) -> None:
    assert decided(ls, ls_lately_cpu_milli=min(ls, lately)) == decided(ls)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,6", [0, 1, 2, 3, 6]), ("", []), (" 1 , 0 ", [0, 1]), ("3-1", None), ("a", None), ("1-", None), ("-", None)],
)
def test_cpu_lists(text: str, cpus: list[int] | None) -> None:
    assert cpu_list(text) == cpus


def test_a_reserved_cpu_list_replaces_the_amount_and_a_broken_one_voids_the_annotation() -> None:
    reserving = msgspec.structs.replace(PLAIN, reserved=Resources(cpu_milli=4_000, mem_bytes=1 << 30))

    assert node_reserved(msgspec.structs.replace(reserving, reserved_cpus="0-1")).cpu_milli == 2_000
    assert node_reserved(msgspec.structs.replace(reserving, reserved_cpus="x")) == Resources(cpu_milli=0, mem_bytes=0)


cpusets = st.sets(st.sampled_from(ALL), min_size=1).map(sorted)
wide_quotas = st.none() | st.integers(2_000, 3_000_000)
held = st.builds(lambda quota_us, cpus: Limits(be_cfs_quota_us=quota_us, be_cpuset=cpus), wide_quotas, cpusets)


def by_both(limits: Limits) -> float:
    return min(quota_rate(limits), len(limits.be_cpuset or ()))


@given(held, st.integers(0, 25_000), st.sampled_from(["cpuset", "cfsQuota"]), st.sampled_from([None, 0, 899, 900]))
def test_no_decision_gives_more_than_a_step_more(now: Limits, ls_milli: int, knob: str, since: int | None) -> None:
    """Whichever knob acts: what both together leave rises by a tenth of the node at most."""
    taken = sample(ls_milli, limits=now, since_raise_ms=since)
    after = decide(taken, WIDE, PODS, policy(cpu_suppress_policy=knob)).limits

    assert after is not None
    assert after.be_cpuset
    assert after.be_cpuset == sorted(set(after.be_cpuset))
    assert now.be_cfs_quota_us is None or by_both(after) <= by_both(now) + 0.1 * CPUS + 1e-9
    if since in {0, 899}:
        assert not looser(after, now)


@given(held, held)
def test_the_cuts_of_a_change_give_no_more_than_either_side(now: Limits, wanted: Limits) -> None:
    cut = tighter(now, wanted, ALL)

    assert not looser(cut, now)
    assert by_both(cut) <= by_both(wanted)
    assert cut.be_cpuset
    assert len(cut.be_cpuset) == min(len(now.be_cpuset or ()), len(wanted.be_cpuset or ()))


@given(held, st.integers(0, 25_000))
def test_on_a_node_that_stays_as_it_is_the_other_knob_is_given_back(now: Limits, ls_milli: int) -> None:
    by_cpuset, by_quota = now, now
    for _ in range(CPUS):
        whole = sample(ls_milli, limits=by_cpuset, use=NodeUse(cpu_milli=ls_milli + 1_000))
        by_cpuset = decide(whole, WIDE, PODS, policy()).limits
        by_quota = decide(sample(ls_milli, limits=by_quota), WIDE, PODS, ON).limits

    assert by_cpuset.be_cfs_quota_us is None
    assert len(by_cpuset.be_cpuset) == max(2, 13 - ls_milli // 1000)
    assert by_quota.be_cpuset == ALL


def test_a_set_with_another_cpu_is_looser_and_an_unknown_one_may_be_all() -> None:
    few, other, unknown = (Limits(be_cfs_quota_us=None, be_cpuset=cpus) for cpus in ([0, 1], [2], None))

    assert looser(other, few)
    assert looser(few, other)
    assert looser(unknown, few)
    assert not looser(few, unknown)


pressed_quotas = st.none() | st.integers(QUOTA_US_MIN, 800_000)


@given(st.integers(0, 8_000), pressed_quotas, st.sampled_from([STALLED, CALM]))
def test_a_policy_by_use_is_blind_to_pressure(ls_milli: int, quota_us: int | None, one: PressureLook) -> None:
    limits = Limits(be_cfs_quota_us=quota_us)
    with_looks = decide(sample(ls_milli, 5_000, limits, ls_pressure=pressed(one)), NARROW, PODS, by("usage"))

    assert with_looks == decide(sample(ls_milli, 5_000, limits), NARROW, PODS, by("usage"))


@given(st.integers(0, 8_000), pressed_quotas, st.integers(0, 2_000))
def test_by_both_an_open_gate_gives_what_use_allows(ls_milli: int, quota_us: int | None, since_ms: int) -> None:
    limits = Limits(be_cfs_quota_us=quota_us)
    taken = sample(ls_milli, 5_000, limits, since_raise_ms=since_ms, ls_pressure=pressed(CALM))
    both, use = (decide(taken, NARROW, PODS, by(signal)) for signal in ("both", "usage"))

    assert (both.answer, both.limits, both.bound) == (use.answer, use.limits, use.bound)
