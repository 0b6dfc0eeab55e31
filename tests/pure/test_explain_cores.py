"""What is told of the CPUs that a pod has for itself, or should have."""

from dataclasses import replace
from typing import Any

from slacktide.deploy.cli.explain.workload_text import placement_text
from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources
from slacktide.schemas.outcome import KnobChange, NodeOutcome
from slacktide.schemas.placement import PodPlacement, RankedNode
from slacktide.schemas.sample import Limits
from slacktide.streams.analysis.explain.cores import cores_findings, cpu_groups
from slacktide.streams.analysis.explain.evidence import Logged, Place
from slacktide.streams.analysis.explain.node_log import NodeLog, node_log
from testbed.chains import outcome
from testbed.samples import sample
from testbed.snapshots import findings
from testbed.vectors import each_row

PLACE = Place(topic="t", partition=0, offset=0, logged_ms=0)
LSE = {"qos_label": "LSE", "cpuset": "0-1"}


def on(*pods: Pod) -> NodeLog:
    """A node of four CPUs."""
    processors = [Processor(cpu=cpu, core=cpu, socket=0, numa_node=0) for cpu in range(4)]
    facts = NodeFacts(name="n", capacity=Resources(), allocatable=Resources(), processors=processors)
    return replace(node_log("n", []), samples=[Logged(body=sample(1, facts=facts, pods=list(pods)), place=PLACE)])


def placed(uid: str = "p", node: str = "n", *, kept: int = 1) -> Logged[PodPlacement]:
    terms = {"cores_count": 2, "cores_free_count": 4, "cores_wish_kept": kept}
    best = RankedNode(node=node, level=10, score_permille=900, bound="scored", terms=terms, cores="0-1")
    body = PodPlacement(pod_uid=uid, namespace="a", name="p", decided_ms=0, asked=1, passed=1, best=[best])
    return Logged(body=body, place=PLACE)


@each_row("pod", "said")
def test_explain_names_the_cpus_and_why(pod: dict[str, Any], said: dict[str, Any] | None, snapshot) -> None:
    placement = None if said is None else placed(**said)
    asks = Resources(cpu_milli=3_000)
    listed = Pod(uid="p", namespace="a", name="p", kube_qos="Guaranteed", requests=asks, **pod)
    assert findings(cores_findings(on(listed), listed, placement)) == snapshot


def test_a_pod_that_waits_is_on_no_node() -> None:
    assert list(cores_findings(None, Pod(uid="p", namespace="a", name="p", **LSE), None)) == []


def test_the_ranking_names_the_cpus_that_the_pod_would_get() -> None:
    assert placement_text(placed(), 0).splitlines()[-1] == "  n: CPUs 0-1, of 4 that are free"


def test_explain_tells_of_cpus_that_the_agent_could_not_set() -> None:
    listed = Pod(uid="p", namespace="a", name="p", requests=Resources(cpu_milli=2_000), **LSE)

    def acted(result: str, knob: str = "cpus", target: str = "pod/p") -> Logged[NodeOutcome]:
        change = KnobChange(knob=knob, before=None, after=None)
        return Logged(body=outcome(result=result, reason="no cpuset", target=target, knob=change), place=PLACE)

    def told(*acts: Logged[NodeOutcome]) -> list[str]:
        return [one.text for one in cores_findings(on(listed), listed, None, acts)]

    unset = "the agent did not bind it to its CPUs 0-1: failed: no cpuset"
    assert told(acted("failed")) == [unset]
    assert told(acted("failed"), acted("applied", "cfs_quota_us"), acted("applied", target="pod/q")) == [unset]
    own = ["CPUs 0-1 are its own: named by its annotation; nobody else runs on their cores"]
    assert told() == told(acted("failed"), acted("applied")) == own


def groups(*pods: Pod, limits: Limits | None = None, **facts: Any) -> list[tuple[int, str, str, list[str], bool]]:
    """Of a node with two cores of two CPUs in each of two zones."""
    processors = [Processor(cpu=cpu, core=cpu % 4, socket=0, numa_node=cpu % 4 // 2) for cpu in range(8)]
    known = NodeFacts(name="n", capacity=Resources(), allocatable=Resources(), processors=processors, **facts)
    body = sample(1, facts=known, pods=list(pods), limits=limits)
    log = replace(node_log("n", []), samples=[Logged(body=body, place=PLACE)])
    return [(one.zone, one.cpus, one.owner, one.pods, one.best_effort) for one in cpu_groups(log)]


def pod(name: str, **given: Any) -> Pod:
    asks = Resources(cpu_milli=3_000)
    return Pod(uid=name, namespace="a", name=name, kube_qos="Guaranteed", requests=asks, **given)


def test_each_cpu_of_a_node_has_an_owner() -> None:
    pods = [
        pod("lse", qos_label="LSE", cpuset="0"), pod("lsr", qos_label="LSR", cpuset="1-2"), pod("ls", qos_label="LS"),
        pod("none", cpuset="6"), pod("over", qos_label="LSE", phase="Succeeded", cpuset="5"),
    ]  # fmt: skip
    shown = groups(*pods, reserved_cpus="5", annotations={"node.koordinator.sh/system-qos-resource": '{"cpuset": "7"}'})
    assert shown == [
        (0, "0", "LSE", ["a/lse"], False),
        (0, "1", "LSR", ["a/lsr"], True),
        (0, "4", "idle", ["a/lse"], False),
        (0, "5", "reserved", [], True),
        (1, "2", "LSR", ["a/lsr"], True),
        (1, "3", "shared", [], True),
        (1, "6", "LSR", ["a/none"], True),
        (1, "7", "SYSTEM", [], True),
    ]


def test_where_best_effort_pods_may_run_is_as_the_node_says() -> None:
    held = Limits(be_cfs_quota_us=None, be_cpuset=[1, 2])
    assert groups(limits=held) == [
        (0, "0,4-5", "shared", [], False), (0, "1", "shared", [], True), (1, "2", "shared", [], True),
        (1, "3,6-7", "shared", [], False),
    ]  # fmt: skip
    others = '{"cpuset": "7", "cpusetExclusive": false}'
    shared = groups(pod("k", exclusive_cpus="3"), annotations={"node.koordinator.sh/system-qos-resource": others})
    assert shared == [
        (0, "0-1,4-5", "shared", [], True), (1, "2,6-7", "shared", [], True), (1, "3", "kubelet", ["a/k"], False),
    ]  # fmt: skip


def test_without_a_topology_nothing_is_known_of_cpus() -> None:
    assert cpu_groups(node_log("n", [])) == []
