"""CPUs that the kubelet's static policy gave to a pod alone: no best-effort pod has them, and no sum counts them."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pure import test_agent

from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.agents.node.protocol import inventory_of
from slacktide.agents.node.zones.reading import ExclusiveCpus
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Processor, Resources
from slacktide.schemas.policy import DEFAULT, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold
from slacktide.schemas.sample import ContainerBurst, Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.decisions.burst.node_burst import burst_settings
from slacktide.streams.decisions.prediction.mid_forecast import NodePeaks, PredictedPod, prod_reclaimable
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from slacktide.streams.decisions.suppress.cpu_suppress import decide
from testbed.chains import Chain
from testbed.node_loads import WHOLE, load, pod, use, used
from testbed.policies import policy_from
from testbed.samples import START_MS, sample
from testbed.vectors import each_row

CPUS, ALONE = 8, "2-5"


def node_of(cpus: int) -> NodeFacts:
    size = Resources(cpu_milli=cpus * 1_000, mem_bytes=16 << 30)
    places = [Processor(cpu=cpu, core=cpu // 2, socket=0, numa_node=0) for cpu in range(cpus)]
    return NodeFacts(name="node-1", capacity=size, allocatable=size, processors=places)


FACTS = node_of(CPUS)
WEB = Pod(uid="web", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
JOB = Pod(uid="job", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort")
OWNER = Pod(
    uid="owner",
    namespace="shop",
    name="owner",
    kube_qos="Guaranteed",
    requests=Resources(cpu_milli=4_500, mem_bytes=1 << 30),
    exclusive_cpus=ALONE,
)


def taken(limits: Limits | None, owner_milli: int = 0, **more: object) -> NodeSample:
    """The service uses 1 CPU, the job 0.5, the system 0.25."""
    uses = {"web": 1_000, "job": 500, "owner": owner_milli}
    made = sample(
        1,
        use=NodeUse(cpu_milli=sum(uses.values()) + 250),
        pod_use=[PodUse(uid=uid, cpu_milli=milli, best_effort_group=uid == "job") for uid, milli in uses.items()],
        limits=limits,
    )
    return msgspec.structs.replace(made, **more)


def suppress(**more: object) -> Policy:
    return policy_of(Colocation(), ResourceThreshold(enable=True, **more))


cpusets = st.sets(st.sampled_from(range(CPUS)), min_size=1).map(sorted)
policies = st.sampled_from([DEFAULT, suppress(), suppress(cpu_suppress_policy="cfsQuota"), suppress(cpuset_cpus_min=1)])


@given(
    cpusets,
    cpusets.filter(lambda cpus: len(cpus) < CPUS),
    st.none() | st.integers(2_000, 900_000),
    policies,
    st.sampled_from([None, 0, 5_000]),
    st.sampled_from(["", "0-7", "0-1"]),
    st.booleans(),
)
def test_no_decision_leaves_best_effort_pods_such_a_cpu(held, alone, quota_us, policy, since_ms, reserved, known):
    """Whatever holds, and also where nothing else can be decided: within a raise's spacing, without a metric."""
    owner = msgspec.structs.replace(OWNER, exclusive_cpus=",".join(map(str, alone)))
    facts = msgspec.structs.replace(FACTS, reserved_cpus=reserved)
    now = taken(Limits(be_cfs_quota_us=quota_us, be_cpuset=held), since_raise_ms=since_ms)
    now = now if known else msgspec.structs.replace(now, use=NodeUse())
    decision = decide(now, facts, [WEB, JOB, owner], policy)
    after = now.limits if decision.limits is None else decision.limits

    assert after is not None
    assert after.be_cpuset
    assert not set(alone) & set(after.be_cpuset)
    assert decision.answer == "set" or not set(alone) & set(held)


@pytest.mark.parametrize("owner_milli", [0, 3_000, 4_000, 4_500])
@pytest.mark.parametrize("minimum_pct", [None, 60])
def test_the_quota_is_that_of_a_node_without_these_cpus(owner_milli: int, minimum_pct: int | None) -> None:
    """The pod has 4 CPUs. Its other containers use at most the half CPU that it requests beyond them."""
    policy = suppress(cpu_suppress_policy="cfsQuota", cpu_suppress_min_pct=minimum_pct)
    now = taken(Limits(be_cfs_quota_us=400_000), owner_milli)
    with_owner = decide(now, FACTS, [WEB, JOB, OWNER], policy)
    shared_milli = min(owner_milli, 500)
    smaller = taken(Limits(be_cfs_quota_us=400_000), shared_milli)
    plain = msgspec.structs.replace(OWNER, exclusive_cpus="")
    without = decide(smaller, node_of(CPUS - 4), [WEB, JOB, plain], policy)

    assert with_owner.terms["exclusive_milli"] == 4_000
    assert with_owner.terms["allowed_milli"] == without.terms["allowed_milli"]


def test_an_idle_part_of_them_is_sold_to_nobody() -> None:
    owner = msgspec.structs.replace(pod("owner", 4_000, 4), exclusive_cpus=ALONE)
    busy = load(owner, metrics=[used("owner", 4_000, 4)])
    idle = load(owner, metrics=[used("owner", 10, 4)])

    assert batch_resource(idle, Colocation()).cpu_milli == batch_resource(busy, Colocation()).cpu_milli
    for node_use in (use(6_000, 10), use(2_010, 10)):
        sold = mid_resource(idle, Colocation(), reclaimable=use(99_000, 0), node_use=node_use)
        assert sold.because[0].terms["unused_milli"] == WHOLE.cpu_milli - node_use.cpu_milli - 3_990


@given(st.integers(0, 4_000), st.integers(0, 6_000), st.integers(0, 9_000))
def test_what_production_leaves_counts_their_request_as_its_peak(peak: int, others: int, system: int) -> None:
    owner = pod("owner", 4_000, 40)
    alone = msgspec.structs.replace(owner, exclusive_cpus=ALONE)
    web = PredictedPod.of(pod("web", 6_000, 40), peak=use(others, 10), age_s=9, deleting=False)

    def left(which: Pod, owner_peak: int) -> int:
        one = PredictedPod.of(which, peak=use(owner_peak, 10), age_s=9, deleting=False)
        peaks = NodePeaks(system=use(system), prod=use(owner_peak + others), unclassed=use())
        found = prod_reclaimable([one, web], peaks, allocatable=WHOLE, cold_start_s=1, safety_margin_pct=0)
        assert found.reclaimable is not None
        return found.reclaimable.cpu_milli

    assert left(alone, peak) == left(owner, 4_000)


def test_the_share_pool_of_bursts_lacks_them_and_their_pod_never_bursts() -> None:
    """The service fills the 3.5 CPUs that are left of 8: nothing is lent, though the node looks half idle."""
    service = msgspec.structs.replace(
        WEB, containers=[Container(name="main", limits=Resources(cpu_milli=1_000))], limits=Resources(cpu_milli=1_000)
    )
    burst = [
        ContainerBurst(pod=uid, container="main", quota_us=100_000, pod_quota_us=100_000, throttled_ratio=0.5)
        for uid in ("web", "owner")
    ]
    now = msgspec.structs.replace(
        taken(None), burst=burst, use=NodeUse(cpu_milli=3_000), pod_use=[PodUse(uid="web", cpu_milli=3_000)]
    )
    policy = msgspec.structs.replace(DEFAULT, cpu_burst=CpuBurst(policy="auto", share_pool_threshold_pct=50))
    plain = msgspec.structs.replace(OWNER, exclusive_cpus="", requests=Resources())
    alone = msgspec.structs.replace(OWNER, containers=service.containers, limits=service.limits)

    lent = burst_settings(now, FACTS, [service, plain], policy)
    assert {one.group for one in lent} == {"pod/web", "pod/web/main"}
    assert burst_settings(now, FACTS, [service, alone], policy) == ()


def test_explain_names_the_cpus_and_their_pod() -> None:
    chain = Chain(pods=[WEB, JOB, OWNER])
    now_ms = chain.run(1, 3)
    findings = explain_node(node_log(chain.node, chain.records), now_ms or START_MS + 3_100).findings
    [found] = [one for one in findings if one.name == "cpus.exclusive"]

    assert found.text == (
        "exclusive CPUs: shop/owner has 2-5; best-effort pods cannot use them, even when they are idle"
    )


UID, MAIN, SIDE = "6a0e-11aa", "a1" * 32, "b2" * 32
ENTRY = '"6a0e-11aa":{"main":"2-3","side":"5"}'
STATE = f'{{"policyName":"static","defaultCpuSet":"0-1,6-7","entries":{{{ENTRY}}},"checksum":1}}'


def guaranteed(uid: str = UID, side_milli: int = 500) -> Pod:
    amounts = {"main": 2_000, "side": side_milli}
    containers = [
        Container(name=name, id=id_, limits=Resources(cpu_milli=amounts[name]))
        for name, id_ in (("main", MAIN), ("side", SIDE))
    ]
    return Pod(uid=uid, namespace="shop", name="owner", kube_qos="Guaranteed", containers=containers)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def mount(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Groups of a Guaranteed pod with two containers, on a node of 8 CPUs."""
    root = tmp_path / "cgroup"
    cpuset = root if request.param == 2 else root / "cpuset"
    for group in ("", "besteffort", f"pod{UID}", f"pod{UID}/{MAIN}", f"pod{UID}/{SIDE}"):
        (cpuset / "kubepods" / group).mkdir(parents=True, exist_ok=True)
        if request.param == 1:
            (root / "cpu/kubepods" / group).mkdir(parents=True, exist_ok=True)
    effective = "cpuset.cpus.effective" if request.param == 2 else "cpuset.effective_cpus"
    (cpuset / "kubepods" / effective).write_text("0-7\n")
    if request.param == 2:
        (root / "cgroup.controllers").write_text("cpuset cpu memory\n")
    return root


def bind(mount: Path, container: str, cpus: str) -> None:
    cpuset = mount if (mount / "cgroup.controllers").exists() else mount / "cpuset"
    (cpuset / f"kubepods/pod{UID}/{container}/cpuset.cpus").write_text(f"{cpus}\n")


def looked(mount: Path, *pods: Pod, folder: Path | None = None) -> dict[str, str]:
    return dict(ExclusiveCpus(find(mount, None), folder).look(pods))


@each_row("cpus", "found")
def test_without_the_kubelets_file_cpusets_of_guaranteed_containers_show_them(mount, cpus: str, found: dict) -> None:
    bind(mount, MAIN, cpus)
    bind(mount, SIDE, "0-1,6-7")

    assert looked(mount, guaranteed()) == found
    assert looked(mount, msgspec.structs.replace(guaranteed(), kube_qos="Burstable")) == {}
    assert looked(mount, guaranteed("elsewhere")) == {}


def test_a_pod_has_the_cpus_of_all_its_containers(mount) -> None:
    bind(mount, MAIN, "2-3")
    bind(mount, SIDE, "5")

    assert looked(mount, guaranteed(side_milli=1_000)) == {UID: "2-3,5"}


def test_the_kubelets_file_counts_before_containers_start_and_its_last_good_content_while_it_is_torn(
    mount: Path, tmp_path: Path
) -> None:
    file = tmp_path / "cpu_manager_state"
    cpus = ExclusiveCpus(find(mount, None), tmp_path)
    bind(mount, MAIN, "2-3")
    without = cpus.look([guaranteed()])
    file.write_text(STATE)
    assert cpus.changed()
    written = cpus.look([])
    assert not cpus.changed()
    file.write_text(STATE[:30])
    assert cpus.changed()
    torn = cpus.look([])
    file.write_text(STATE.replace("static", "none").replace(ENTRY, ""))

    assert (without, written, torn) == ({UID: "2-3"}, {UID: "2-3,5"}, {UID: "2-3,5"})
    assert cpus.look([guaranteed()]) == {}


def test_the_agents_list_marks_the_pod() -> None:
    [marked, plain] = inventory_of(FACTS, [guaranteed(), WEB], {UID: "2-3,5", "gone": "0"}).pods

    assert (marked.exclusive_cpus, plain.exclusive_cpus) == ("2-3,5", "")


def test_best_effort_pods_leave_a_cpu_at_once_that_the_kubelet_gives_away() -> None:
    bench = test_agent.with_cpus()
    bench.agent.answered(test_agent.bound_to(bench.tick(), [1, 2]))
    owner = msgspec.structs.replace(guaranteed(), uid="owner")
    pods = [*test_agent.PODS, owner]
    bench.agent.inventory(test_agent.FACTS, pods, {"owner": "2-3"})
    last, held = bench.last(), bench.kernel.held
    older = test_agent.answer_to(bench.tick(), 100_000)
    hold = msgspec.structs.replace(older.hold[0], limits=Limits(be_cfs_quota_us=100_000, be_cpuset=[1, 2]))
    bench.agent.answered(msgspec.structs.replace(older, hold=[hold]))

    assert held.be_cpuset == [1]
    assert (last.rule, last.origin, last.result, last.reason) == (
        "exclusive_cpus", "agent", "applied", "pods have exclusive CPUs 2-3"
    )  # fmt: skip
    assert not {2, 3} & set(bench.kernel.held.be_cpuset or ())
    assert bench.last().reason == "disagrees"


def test_a_suspended_agent_and_a_dry_run_leave_the_group_to_the_kubelet() -> None:
    dry = policy_from(threshold={"clusterStrategy": {"enable": True, "cpuSuppressDryRun": True}})
    for policy, why in ((dry, ""), (DEFAULT, "an operator")):
        bench = test_agent.with_cpus()
        bench.agent.policy(policy)
        bench.tick()
        bench.agent.suspend(why)
        held = bench.kernel.holds[:]
        bench.agent.inventory(test_agent.FACTS, [*test_agent.PODS, guaranteed()], {UID: "2-3"})

        assert bench.kernel.holds == held
