"""What is told of the CPUs that a pod has for itself, or should have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slacktide.deploy.cli.explain.workload_text import placement_text
from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources
from slacktide.schemas.placement import PodPlacement, RankedNode
from slacktide.streams.analysis.explain.cores import cores_findings
from slacktide.streams.analysis.explain.evidence import Logged, Place
from slacktide.streams.analysis.explain.node_log import NodeLog, node_log
from testbed.samples import sample
from testbed.snapshots import findings, situations

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


@situations(
    "given",
    {
        "LSE": (LSE, placed()),
        "LSR, its wish not kept": ({"qos_label": "LSR", "cpuset": "0-1"}, placed(kept=0)),
        "a record of an earlier pod": (LSE, placed("another")),
        "the node has shrunk": (LSE | {"cpuset": "3-5"}, None),
        "it has lost all": (LSE | {"cpuset": "8-9"}, None),
        "it came without": (LSE | {"cpuset": ""}, None),
        "it names more than it requests": (LSE | {"cpuset": "0-7"}, None),
        "LS": ({"qos_label": "LS"}, placed()),
        "it has ended": (LSE | {"phase": "Succeeded"}, placed()),
    },
)
def test_explain_names_the_cpus_and_why(given: tuple[dict[str, Any], Logged[PodPlacement] | None], snapshot) -> None:
    pod, placement = given
    asks = Resources(cpu_milli=3_000)
    listed = Pod(uid="p", namespace="a", name="p", kube_qos="Guaranteed", requests=asks, **pod)
    assert findings(cores_findings(on(listed), listed, placement)) == snapshot


def test_a_pod_that_waits_is_on_no_node() -> None:
    assert list(cores_findings(None, Pod(uid="p", namespace="a", name="p", **LSE), None)) == []


def test_the_ranking_names_the_cpus_that_the_pod_would_get() -> None:
    assert placement_text(placed(), 0).splitlines()[-1] == "  n: CPUs 0-1, of 4 that are free"
