"""What is told of the CPUs that a pod has for itself, or should have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slacktide.deploy.cli.explain.workload_text import placement_text
from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources
from slacktide.schemas.placement import PodPlacement, RankedNode
from slacktide.streams.analysis.explain.cores import cores_findings
from slacktide.streams.analysis.explain.evidence import Logged, Place
from slacktide.streams.analysis.explain.node_log import NodeLog, node_log
from testbed.samples import sample

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
    body = PodPlacement(
        pod_uid=uid, namespace="a", name="p", decided_ms=0, asked=1, passed=1, best=[best]
    )  # fmt: skip
    return Logged(body=body, place=PLACE)


CHOSEN = "the scheduler chose them of 4 free CPUs"
NAMED = "named by its annotation"
ALONE, BESIDE = "nobody else runs on their cores", "best-effort pods may run there, too"
UNKEPT = "where its exclusive policy could not be kept"
SHARES = "warning it shares the CPUs of LS pods, although its class is LSE"


@pytest.mark.parametrize(
    ("pod", "placement", "told"),
    [
        pytest.param(LSE, placed(), [f"ok CPUs 0-1 are its own: {CHOSEN}; {ALONE}"], id="LSE"),
        pytest.param(
            {"qos_label": "LSR", "cpuset": "0-1"},
            placed(kept=0),
            [f"ok CPUs 0-1 are its own: {CHOSEN}, {UNKEPT}; {BESIDE}"],
            id="LSR, its wish not kept",
        ),
        pytest.param(
            LSE, placed("another"), [f"ok CPUs 0-1 are its own: {NAMED}; {ALONE}"], id="a record of an earlier pod"
        ),
        pytest.param(
            LSE | {"cpuset": "3-5"},
            None,
            [f"ok CPUs 3-5 are its own: {NAMED}; {ALONE}", "warning the node lacks 4-5 of the pod's CPUs 3-5"],
            id="the node has shrunk",
        ),
        pytest.param(
            LSE | {"cpuset": "8-9"}, None, [f"{SHARES}: the node has none of its CPUs 8-9"], id="it has lost all"
        ),
        pytest.param(LSE | {"cpuset": ""}, None, [f"{SHARES}: no scheduler gave it CPUs"], id="it came without"),
        pytest.param(
            LSE | {"cpuset": "0-7"},
            None,
            [f"{SHARES}: its annotation resource-status names CPUs '0-7': not a list, or more than it requests"],
            id="it names more than it requests",
        ),
        pytest.param({"qos_label": "LS"}, placed(), [], id="LS"),
        pytest.param(LSE | {"phase": "Succeeded"}, placed(), [], id="it has ended"),
    ],
)
def test_explain_names_the_cpus_and_why(
    pod: dict[str, Any], placement: Logged[PodPlacement] | None, told: list[str]
) -> None:
    asks = Resources(cpu_milli=3_000)
    listed = Pod(uid="p", namespace="a", name="p", kube_qos="Guaranteed", requests=asks, **pod)
    found = cores_findings(on(listed), listed, placement)
    assert [f"{one.severity} {one.text}" for one in found] == told


def test_a_pod_that_waits_is_on_no_node() -> None:
    assert list(cores_findings(None, Pod(uid="p", namespace="a", name="p", **LSE), None)) == []


def test_the_ranking_names_the_cpus_that_the_pod_would_get() -> None:
    assert placement_text(placed(), 0).splitlines()[-1] == "  n: CPUs 0-1, of 4 that are free"
