"""Why a batch pod is not scheduled is one command, and each cause has its own answer with what to do."""

from typing import Any

import pytest

from slacktide.deploy.cli.explain.workload_text import pod_text
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.streams.analysis.explain.manifest import manifest_of
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.analysis.explain.pod import PodLog, explain_pod
from testbed.chains import Chain
from testbed.policies import policy_from
from testbed.samples import BATCH, GIB, SERVICE, START_MS

HOUR_MS = 3_600_000


def waiting(cpu: str, **spec: Any) -> dict[str, Any]:
    """A batch pod that waits, as kubectl prints it."""
    wants = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": "1Gi"}
    container = {"name": "main", "resources": {"requests": wants, "limits": wants}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "etl",
            "namespace": "jobs",
            "labels": {"koordinator.sh/qosClass": "BE"},
            "ownerReferences": [{"kind": "Job", "name": "etl", "controller": True}],
        },
        "spec": {"schedulerName": "koord-scheduler", "priority": 5000, "containers": [container], **spec},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
    }


def explained(document: dict[str, Any], *, enable: bool = True, silent_s: int = 0) -> str:
    """What `slacktide explain pod` prints, of a cluster of one node that sells some batch CPU."""
    amounts = Resources(cpu_milli=4_000, mem_bytes=16 * GIB)
    facts = NodeFacts(name="node-1", capacity=amounts, allocatable=amounts)
    chain = Chain(policy_from(colocation={"enable": enable}), facts, [SERVICE, BATCH])
    chain.run(1, 12)
    log = PodLog(nodes=[node_log("node-1", chain.records)], on=None, outcomes=[], span_ms=HOUR_MS)
    now_ms = START_MS + 12_100 + silent_s * 1_000
    told = explain_pod(log, "jobs", "etl", manifest_of(document, "pod.yaml", "jobs", "etl"), now_ms)
    assert told is not None
    return " ".join(pod_text(told).split())


@pytest.mark.parametrize(
    ("document", "cluster", "cause"),
    [
        pytest.param(
            waiting("9000"), {}, "pending.too-high: batch-cpu: the pod requests 9,000m", id="larger than a node"
        ),
        pytest.param(waiting("100"), {"enable": False}, "colocation-config: enable is false", id="colocation is off"),
        pytest.param(waiting("100", nodeSelector={"disk": "ssd"}), {}, "pending.selector: ", id="no such label"),
        pytest.param(waiting("100"), {"silent_s": 60}, "is not considered: node-1 (frozen: ", id="nobody publishes"),
    ],
)
def test_each_cause_is_named(document: dict[str, Any], cluster: dict[str, Any], cause: str) -> None:
    text = explained(document, **cluster)

    assert cause in text
    assert "to do:" in text


def test_where_there_is_room_that_is_the_answer() -> None:
    text = explained(waiting("100"))

    assert "the pod fits on node-1" in text
    assert "problem" not in text
