"""Laws of the CPU suppress decision by CPU set, and of what becomes of the knob that is not in use."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources
from slacktide.schemas.policy import DEFAULT, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.suppress.cpu_suppress import Decision, decide, looser, quota_rate, tighter
from slacktide.streams.decisions.suppress.node_cpus import ANNOTATION_SYSTEM_QOS

CPUS = 20
ALL = list(range(CPUS))
CAPACITY = Resources(cpu_milli=CPUS * 1000, mem_bytes=16 << 30)
FACTS = NodeFacts(
    name="node-1",
    capacity=CAPACITY,
    allocatable=CAPACITY,
    processors=[Processor(cpu=cpu, core=cpu // 2, socket=0, numa_node=0) for cpu in range(CPUS)],
)
LS = Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
BE = Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort")

quotas = st.none() | st.integers(2_000, 3_000_000)
cpusets = st.sets(st.sampled_from(ALL), min_size=1).map(sorted)
held = st.builds(lambda quota_us, cpus: Limits(be_cfs_quota_us=quota_us, be_cpuset=cpus), quotas, cpusets)


def policy(**more):
    return policy_of(Colocation(), ResourceThreshold(enable=True, **more))


def sample(limits: Limits, ls_milli: int = 3_000, **more) -> NodeSample:
    return NodeSample(
        node="node-1",
        boot_id="000000000001-00000000",
        seq=1,
        observed_ms=1_000,
        interval_ms=1_000,
        policy_version="p",
        facts_revision="f",
        pods_revision="p",
        use=NodeUse(cpu_milli=ls_milli + 1_000),
        pod_use=[PodUse(uid="ls", cpu_milli=ls_milli), PodUse(uid="be", cpu_milli=1_000, best_effort_group=True)],
        limits=limits,
        **more,
    )


def decided(quota_us=None, cpus=ALL, ls_milli=3_000, since_raise_ms=None, **more) -> Decision:
    taken = sample(Limits(be_cfs_quota_us=quota_us, be_cpuset=cpus), ls_milli, since_raise_ms=since_raise_ms)
    return decide(taken, **{"facts": FACTS, "pods": [LS, BE], "policy": policy()} | more)


def rate(limits: Limits) -> float:
    return min(quota_rate(limits), len(limits.be_cpuset))


def annotated(**system) -> NodeFacts:
    text = msgspec.json.encode(system).decode()
    return msgspec.structs.replace(FACTS, annotations={ANNOTATION_SYSTEM_QOS: text})


def test_a_cut_is_made_at_once_and_whole() -> None:
    """65% of 20 CPUs are 13, less 3 for the service: 10."""
    decision = decided(since_raise_ms=0)

    assert (decision.answer, decision.limits) == ("set", Limits(be_cfs_quota_us=None, be_cpuset=list(range(10))))
    assert (decision.terms["formula_milli"], decision.terms["wanted_cpus"]) == (10_000, 10)


def test_a_raise_adds_a_tenth_of_the_cpus_and_waits_900_ms() -> None:
    raised = decided(cpus=[0, 1])
    spaced = decided(cpus=[0, 1], since_raise_ms=899)

    assert (raised.bound, raised.limits.be_cpuset) == ("stepped", [0, 1, 2, 3])
    assert (spaced.answer, spaced.bound) == ("keep", "raise_spaced")


@given(held, st.integers(0, 25_000), st.sampled_from(["cpuset", "cfsQuota"]), st.sampled_from([None, 0, 899, 900]))
def test_no_decision_gives_more_than_a_step_more(now: Limits, ls_milli: int, knob: str, since: int | None) -> None:
    """Whichever knob acts: what both together leave rises by a tenth of the node at most."""
    decision = decide(sample(now, ls_milli, since_raise_ms=since), FACTS, [LS, BE], policy(cpu_suppress_policy=knob))
    after = decision.limits

    assert after.be_cpuset
    assert after.be_cpuset == sorted(set(after.be_cpuset))
    first_quota = now.be_cfs_quota_us is None
    assert first_quota or rate(after) <= rate(now) + 0.1 * CPUS + 1e-9
    if since in {0, 899}:
        assert not looser(after, now)


@given(held, held)
def test_the_cuts_of_a_change_give_no_more_than_either_side(now: Limits, wanted: Limits) -> None:
    cut = tighter(now, wanted, ALL)

    assert not looser(cut, now)
    assert rate(cut) <= rate(wanted)
    assert len(cut.be_cpuset) == min(len(now.be_cpuset), len(wanted.be_cpuset))
    assert cut.be_cpuset


@settings(deadline=None, max_examples=30)
@given(held, st.integers(0, 25_000))
def test_on_a_node_that_stays_as_it_is_the_other_knob_is_given_back(now: Limits, ls_milli: int) -> None:
    by_cpuset, by_quota = now, now
    for _ in range(CPUS):
        by_cpuset = decide(sample(by_cpuset, ls_milli), FACTS, [LS, BE], policy()).limits
        quota_policy = policy(cpu_suppress_policy="cfsQuota")
        by_quota = decide(sample(by_quota, ls_milli), FACTS, [LS, BE], quota_policy).limits

    assert by_cpuset.be_cfs_quota_us is None
    assert len(by_cpuset.be_cpuset) == max(2, 13 - ls_milli // 1000)
    assert by_quota.be_cpuset == ALL


def test_a_quota_in_force_is_lifted_by_steps_once_the_cpu_set_holds() -> None:
    decision = decided(quota_us=100_000)

    assert decision.limits == Limits(be_cfs_quota_us=300_000, be_cpuset=list(range(10)))
    assert decided(quota_us=900_000, cpus=list(range(10))).limits.be_cfs_quota_us is None


@pytest.mark.parametrize(
    ("facts", "cpus_min", "free"),
    [
        pytest.param(FACTS, CPUS, CPUS, id="no more CPUs than the fewest"),
        pytest.param(msgspec.structs.replace(FACTS, reserved_cpus="0-17"), 2, 2, id="the others are reserved"),
        pytest.param(annotated(cpuset="0-19"), 1, 0, id="all are exclusive to the system"),
        pytest.param(msgspec.structs.replace(FACTS, processors=[]), 2, 0, id="nobody knows where they are"),
    ],
)
def test_where_no_cpu_set_could_hold_the_quota_does_and_says_so(facts, cpus_min: int, free: int) -> None:
    decision = decided(facts=facts, policy=policy(cpuset_cpus_min=cpus_min))

    assert decision.answer == "set"
    assert decision.limits.be_cfs_quota_us is not None
    assert decision.bound in {"quota_target", "quota_floored"}
    assert (decision.terms["free_cpus"], decision.terms["cpuset_cpus_min"]) == (free, cpus_min)


def test_without_a_cpuset_controller_the_quota_holds_and_the_set_stays_unknown() -> None:
    decision = decide(sample(Limits(be_cfs_quota_us=None)), FACTS, [LS, BE], policy())

    assert decision.limits == Limits(be_cfs_quota_us=1_000_000)
    assert (decision.bound, decision.terms["free_cpus"]) == ("quota_target", 0)


def test_the_fewest_cpus_are_the_policys() -> None:
    assert decided(ls_milli=20_000).limits.be_cpuset == [0, 1]
    assert decided(ls_milli=20_000, policy=policy(cpuset_cpus_min=1)).limits.be_cpuset == [0]


@pytest.mark.parametrize(
    ("facts", "pods", "free"),
    [
        pytest.param(FACTS, [], ALL, id="none is kept"),
        pytest.param(msgspec.structs.replace(FACTS, reserved_cpus="0,19"), [], ALL[1:19], id="reserved"),
        pytest.param(msgspec.structs.replace(FACTS, reserved_cpus="x"), [], ALL, id="an unreadable reservation"),
        pytest.param(annotated(cpuset="0-9"), [], ALL[10:], id="the system's"),
        pytest.param(annotated(cpuset="0-9", cpusetExclusive=False), [], ALL, id="the system's, but shared"),
        pytest.param(annotated(cpuset=7), [], ALL, id="an unreadable annotation"),
        pytest.param(FACTS, [{"qos_label": "LSE", "cpuset": "0-3"}], ALL[4:], id="an LSE pod's"),
        pytest.param(FACTS, [{"qos_label": "LSR", "cpuset": "0-3"}], ALL, id="an LSR pod's are shared"),
        pytest.param(
            FACTS, [{"qos_label": "LSE", "cpuset": "0-3", "phase": "Succeeded"}], ALL, id="an LSE pod's that ended"
        ),
    ],
)
def test_suppress_off_gives_back_all_cpus_but_those_kept_from_best_effort_pods(facts, pods, free) -> None:
    bound = [msgspec.structs.replace(LS, uid=f"bound-{number}", **more) for number, more in enumerate(pods)]
    decision = decided(quota_us=5_000, cpus=[5], facts=facts, pods=[LS, BE, *bound], policy=DEFAULT, since_raise_ms=0)

    assert (decision.bound, decision.limits) == ("disabled", Limits(be_cfs_quota_us=None, be_cpuset=free))


def test_a_cpu_that_an_lse_pod_gets_is_taken_at_once() -> None:
    pinned = msgspec.structs.replace(LS, uid="lse", qos_label="LSE", cpuset="0-1")
    decision = decided(cpus=ALL[:10], pods=[LS, BE, pinned], since_raise_ms=0)

    assert not {0, 1} & set(decision.limits.be_cpuset)


def test_a_set_with_another_cpu_is_looser_and_an_unknown_one_may_be_all() -> None:
    few, other, unknown = (Limits(be_cfs_quota_us=None, be_cpuset=cpus) for cpus in ([0, 1], [2], None))

    assert looser(other, few)
    assert looser(few, other)
    assert looser(unknown, few)
    assert not looser(few, unknown)
