"""Why a pod was evicted stays known, whatever the pod wrote as it ended and whatever came after it."""

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.analysis.explain.evidence import logged
from slacktide.streams.analysis.explain.manifest import manifest_of
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.analysis.explain.pod import PodLog, explain_pod
from testbed.chains import Chain, evicted, outcome_record
from testbed.policies import policy_from
from testbed.samples import BATCH, GIB, SERVICE, START_MS

HOUR_MS = 3_600_000
OWN_WORDS = "disk quota exceeded"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "etl-x2lqp", "namespace": "jobs", "labels": {"koordinator.sh/qosClass": "BE"}},
    "spec": {"containers": [{"name": "main"}]},
    "status": {
        "phase": "Failed",
        "reason": "Error",
        "message": OWN_WORDS,
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": OWN_WORDS}}}
        ],
    },
}


def test_the_rule_and_its_figures_are_told_beside_how_the_pod_ended() -> None:
    amounts = Resources(cpu_milli=4_000, mem_bytes=16 * GIB)
    facts = NodeFacts(name="node-1", capacity=amounts, allocatable=amounts)
    chain = Chain(policy_from(colocation={"enable": True}), facts, [SERVICE, BATCH])
    chain.run(1, 12)
    asked = evicted(3, reason="SIGTERM, and SIGKILL after 30000 ms", spent=Spent(evictions=1))
    ended = evicted(3, bound="ended", reason=f"ended by itself after 800 ms: {OWN_WORDS}", command_id="end")
    outcomes = logged([outcome_record(one, at) for at, one in enumerate((asked, ended))], OUTCOME, NodeOutcome)
    log = PodLog(nodes=[node_log("node-1", chain.records)], on=None, outcomes=outcomes, span_ms=HOUR_MS)

    told = explain_pod(log, "jobs", "etl-x2lqp", manifest_of(POD, "pod.yaml", "jobs", "etl-x2lqp"), START_MS + 12_100)

    assert told is not None
    [eviction] = told.evictions
    assert (eviction.rule, eviction.observed) == ("BEMemoryEvict", "83% used, threshold 70%")
    assert eviction.ended == f"ended by itself after 800 ms: {OWN_WORDS}"
