"""Why a pod waits, why it is evicted, and whether it is made as a best-effort pod should be."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slacktide.deploy.cli.explain.workload_text import pod_text
from slacktide.schemas.codec import encode
from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.descheduling import DeschedulingPass, SourceNode, StayingPods, Victim
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.missed_pod import LackedMark, MissedPod
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.refused_pod import RefusedPod
from slacktide.schemas.sample import Limits, PodUse
from slacktide.schemas.topics import DESCHEDULING, OUTCOME, PLACEMENT
from slacktide.streams.explain.descheduling import looks
from slacktide.streams.explain.evictions import controller_of, observed
from slacktide.streams.explain.evidence import Finding, Logged, Place, logged
from slacktide.streams.explain.manifest import Manifest, manifest_of
from slacktide.streams.explain.node_log import NodeLog, node_log
from slacktide.streams.explain.pod import PodExplanation, PodLog, explain_pod, last_placement, last_refused
from slacktide.streams.records import Record
from testbed.chains import Chain, evicted, outcome_record
from testbed.policies import policy_from
from testbed.samples import BATCH, FACTS, GIB, SERVICE, START_MS

HOUR_MS = 3_600_000
NOW_MS = START_MS + 12_100
WANTS = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "etl-x2lqp",
        "namespace": "jobs",
        "uid": "uid-etl",
        "labels": {"koordinator.sh/qosClass": "BE", "app": "etl"},
        "ownerReferences": [{"kind": "Job", "name": "etl", "controller": True}],
    },
    "spec": {
        "schedulerName": "koord-scheduler",
        "priority": 5000,
        "containers": [{"name": "main", "resources": {"requests": WANTS, "limits": WANTS}}],
    },
    "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
}


def pod(**spec: Any) -> dict[str, Any]:
    """The pod as kubectl prints it, with other fields in its spec."""
    made = copy.deepcopy(POD)
    made["spec"] |= spec
    return made


def asking(cpu: str, memory: str = "1Gi", **limits: str) -> list[dict[str, Any]]:
    """Containers that request so much."""
    requests = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    own = {f"kubernetes.io/batch-{name}": amount for name, amount in limits.items()}
    return [{"name": "main", "resources": {"requests": requests, "limits": requests | own}}]


def manifest(document: dict[str, Any]) -> Manifest:
    return manifest_of(document, "pod.yaml", "jobs", "etl-x2lqp")


def node(name: str = "node-1", *, cpu_milli: int = 4_000, enable: bool = True, **labels: str) -> NodeLog:
    """A node whose service uses one CPU: of 4 it sells 2.4 less that and 0 of the system."""
    whole = Resources(cpu_milli=cpu_milli, mem_bytes=16 * GIB)
    facts = NodeFacts(name=name, capacity=whole, allocatable=whole, labels=labels)
    policy = policy_of(Colocation(enable=enable, metric_aggregate_duration_s=10), ResourceThreshold())
    chain = Chain(policy, facts, [SERVICE, msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=500))])
    chain.run(1, 12)
    return node_log(name, chain.records)


def explain(
    nodes: list[NodeLog],
    document: dict[str, Any] | None = None,
    outcomes: list[NodeOutcome] | None = None,
    *,
    on: NodeLog | None = None,
    name: str = "jobs/etl-x2lqp",
) -> PodExplanation:
    acts = logged([outcome_record(one, offset) for offset, one in enumerate(outcomes or [])], OUTCOME, NodeOutcome)
    log = PodLog(nodes=nodes, on=on, outcomes=acts, span_ms=HOUR_MS)
    told = explain_pod(log, *name.split("/"), None if document is None else manifest(document), NOW_MS)
    assert told is not None
    return told


def named(told: PodExplanation, name: str) -> Finding:
    found = [one for one in told.findings if one.name == name]
    assert found, [one.name for one in told.findings]
    return found[0]


def names(told: PodExplanation) -> set[str]:
    return {one.name for one in told.findings}


def batch_cpu(log: NodeLog) -> int:
    assert log.allocatable is not None
    sold = log.allocatable.body.batch_cpu_milli
    assert sold is not None
    return sold


def test_a_pod_that_would_fit_is_told_so_with_the_node() -> None:
    told = explain([node()], pod(containers=asking("200")))

    assert named(told, "pending.fits").text == "the pod fits on node-1"
    assert not {one.name for one in told.findings if one.severity == "problem"}


def test_what_others_asked_for_is_not_left() -> None:
    """The figure counts for all pods together: 500 millicores of it are taken."""
    there = node()
    sold = batch_cpu(there)
    told = explain([there], pod(containers=asking(str(sold - 400))))

    cpu = told.rooms[0].rooms[0]
    assert (cpu.asked, cpu.sold, cpu.left) == (sold - 400, sold, sold - 500)
    assert named(told, "pending.short").text == (
        f"batch-cpu is short on every node: {sold - 400:,}m is requested, node-1 has most free: {sold - 500:,}m"
    )


def test_without_a_score_what_is_left_is_told_by_the_nodes_pods() -> None:
    there = node()
    unscored = NodeLog(**{name: getattr(there, name) for name in there.__slots__} | {"score": None})

    assert explain([unscored], pod()).rooms[0].rooms[0].left == batch_cpu(there) - 500


def test_the_node_that_comes_nearest_is_named() -> None:
    told = explain([node("node-1"), node("node-2", cpu_milli=8_000)], pod(containers=asking("3500", "64Gi")))

    assert (
        "batch-memory: the pod requests 65,536 MiB, but no node has more than" in named(told, "pending.too-high").text
    )
    assert [room.node for room in told.rooms] == ["node-1", "node-2"]


def test_more_than_any_node_sells_to_all_pods_together_is_too_high() -> None:
    there = node()
    told = explain([there], pod(containers=asking("9000")))

    assert named(told, "pending.too-high").text == (
        f"batch-cpu: the pod requests 9,000m, but no node has more than {batch_cpu(there):,}m in total (node-1)"
    )
    assert "pending.short" not in names(told)


def test_a_selector_that_no_node_meets_names_the_label_and_what_is_there() -> None:
    told = explain([node(pool="web")], pod(nodeSelector={"pool": "batch"}))

    assert named(told, "pending.selector").text.endswith(
        "such as node-1: nodeSelector requires pool=batch, the node has pool=web"
    )
    assert told.rooms[0].selected is False


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Node affinity; each expression is a term of its own."""
    terms = [{"matchExpressions": [one]} for one in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("expressions", "selected"),
    [
        pytest.param([{"key": "pool", "operator": "In", "values": ["web", "db"]}], True, id="one of its values"),
        pytest.param([{"key": "pool", "operator": "NotIn", "values": ["web"]}], False, id="a value that is ruled out"),
        pytest.param([{"key": "gpu", "operator": "Exists"}], False, id="a label that is not there"),
        pytest.param(
            [{"key": "gpu", "operator": "Exists"}, {"key": "pool", "operator": "Exists"}], True, id="one of the terms"
        ),
    ],
)
def test_required_node_affinity_is_held_against_the_labels(
    expressions: list[dict[str, Any]], *, selected: bool
) -> None:
    told = explain([node(pool="web")], pod(affinity=required(*expressions)))

    assert told.rooms[0].selected is selected


def test_an_empty_term_of_node_affinity_matches_no_node() -> None:
    affinity = required()
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms.append({})
    told = explain([node(pool="web")], pod(affinity=affinity))
    assert not told.rooms[0].selected
    assert "node affinity has no terms" in named(told, "pending.selector").text
    terms.append({"matchExpressions": [{"key": "pool", "operator": "Exists"}]})
    assert explain([node(pool="web")], pod(affinity=affinity)).rooms[0].selected


def test_what_cannot_be_judged_here_is_said() -> None:
    affinity = required({"key": "cores", "operator": "Gt", "values": ["4"]}) | {"podAntiAffinity": {"x": 1}}
    told = explain([node()], pod(affinity=affinity))

    text = named(told, "pending.not-judged").text
    assert "operator 'Gt'" in text
    assert "podAntiAffinity" in text
    assert told.rooms[0].selected


def test_another_scheduler_does_not_know_batch_resources() -> None:
    told = explain([node()], pod(schedulerName="default-scheduler", containers=asking("200")))

    assert "its schedulerName is default-scheduler, not koord-scheduler" in named(told, "pending.scheduler").text


def test_nodes_that_sell_nothing_say_why() -> None:
    told = explain([node(enable=False)], pod())

    assert (
        "no batch resources are published: batch resources are disabled by policy" in named(told, "pending.short").text
    )
    assert "batch resources are disabled" in told.rooms[0].why_none
    assert not told.rooms[0].fits


def stale(there: NodeLog) -> NodeLog:
    """The same, silent for 12 s."""
    assert there.allocatable is not None
    body = msgspec.structs.replace(there.allocatable.body, stale_ms=12_000)
    silent = type(there.allocatable)(body=body, place=there.allocatable.place)
    return NodeLog(**{name: getattr(there, name) for name in there.__slots__} | {"allocatable": silent})


def test_a_stale_node_takes_no_pod() -> None:
    told = explain([stale(node())], pod(containers=asking("200")))

    found = named(told, "pending.passed-over")
    assert found.severity == "problem"
    assert found.text == "this node is not considered: node-1 (stale for 12 s, with room)"
    assert found.advice == "`slacktide explain node node-1` shows why it is silent"
    assert "pending.short" not in names(told)
    assert "stale for 12 s" in pod_text(told)


def test_figures_that_nobody_says_again_are_no_room() -> None:
    """No worker runs any more: what stands in the topic is of long ago, whatever it says."""
    document = manifest(pod(containers=asking("200")))
    log = PodLog(nodes=[node()], on=None, outcomes=[], span_ms=HOUR_MS)
    told = explain_pod(log, "jobs", "etl-x2lqp", document, NOW_MS + HOUR_MS)

    assert told is not None
    assert "frozen: no worker has published its figures for 36" in named(told, "pending.passed-over").text
    native = manifest(pod(containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}]))
    told = explain_pod(log, "jobs", "etl-x2lqp", native, NOW_MS + HOUR_MS)
    assert told is not None
    assert "pending.fits" in names(told)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(lambda: cordoned("node-2"), "node-2 (cordoned, with room)", id="cordoned"),
        pytest.param(lambda: stale(node("node-2", cpu_milli=8_000)), "node-2 (stale for 12 s, with room)", id="stale"),
        pytest.param(
            lambda: node("node-2", cpu_milli=8_000, pool="web"),
            "node-2 (nodeSelector requires pool=batch, the node has pool=web, with room)",
            id="other labels",
        ),
    ],
)
@pytest.mark.parametrize(("asked", "short"), [("800", "pending.short"), ("1100", "pending.too-high")])
def test_a_node_with_room_that_does_not_count_is_named_beside_those_that_are_short(
    other: Callable[[], NodeLog], why: str, asked: str, short: str
) -> None:
    small = node("node-1", cpu_milli=3_000, pool="batch")
    wanted = {"nodeSelector": {"pool": "batch"}} if "nodeSelector" in why else {}
    told = explain([small, other()], pod(containers=asking(asked), **wanted))

    assert "node that is considered" in named(told, short).text
    assert "node-1" in named(told, short).text
    assert named(told, "pending.passed-over").text == f"this node is not considered: {why}"


def test_of_native_amounts_it_is_said_that_others_are_not_counted() -> None:
    native = {"cpu": "1", "memory": "1Gi"}
    told = explain([node()], pod(containers=[{"name": "main", "resources": {"requests": native}}]))

    assert named(told, "pending.fits").text == (
        "the pod fits on node-1; requests of other pods for cpu and memory are not subtracted"
    )


def test_without_any_node_that_is_what_is_said() -> None:
    assert named(explain([], pod()), "pending.no-nodes").severity == "problem"


def test_the_schedulers_own_words_are_repeated() -> None:
    document = pod()
    document["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]

    assert named(explain([node()], document), "pending.condition").text == "the scheduler reports: 0/3 nodes"


def test_a_pod_that_no_scheduler_looked_at_is_a_problem() -> None:
    document = pod(containers=asking("200"), schedulerName="koord-scheduler")
    document["status"] = {"phase": "Pending"}

    found = named(explain([node()], document), "pending.unserved")
    assert found.severity == "problem"
    assert "run a scheduler named koord-scheduler" in found.advice


def test_a_manifest_that_was_not_created_waits_for_no_scheduler() -> None:
    document = pod(containers=asking("200"))
    del document["metadata"]["uid"], document["status"]

    assert "pending.unserved" not in names(explain([node()], document))


def cordoned(name: str) -> NodeLog:
    chain = Chain(facts=msgspec.structs.replace(FACTS, name=name, unschedulable=True))
    chain.run(1, 12)
    return node_log(name, chain.records)


def test_a_cordoned_node_has_no_room() -> None:
    told = explain([cordoned("node-1"), cordoned("node-2")], pod(containers=asking("200")))

    assert "pending.fits" not in names(told)
    found = named(told, "pending.cordoned")
    assert (found.text, found.advice) == ("all 2 nodes are cordoned: node-1, node-2", "kubectl uncordon node-1")


def test_beside_a_cordoned_node_the_others_are_named() -> None:
    told = explain([cordoned("node-1"), node("node-2")], pod(containers=asking("200")))

    assert named(told, "pending.fits").text == "the pod fits on node-2"


BOUGHT = Resources(batch_cpu_milli=500, batch_mem_bytes=GIB)
BUYER = msgspec.structs.replace(BATCH, priority=5_000, requests=BOUGHT, limits=BOUGHT)


def limited(quota_us: int | None, **use: Any) -> NodeLog:
    """A node whose best-effort pods have that quota, and whose batch pod uses 20 millicores."""
    chain = Chain(pods=[SERVICE, BUYER])
    used = PodUse(uid=BUYER.uid, cpu_milli=20, mem_bytes=GIB, best_effort_group=True, **use)
    chain.run(1, 12, pod_use=[used], limits=Limits(be_cfs_quota_us=quota_us))
    return node_log("node-1", chain.records)


def test_a_pod_that_is_held_is_said_to_be_held_and_not_to_ask_for_too_much() -> None:
    there = limited(2_000, periods=10, throttled_periods=9)
    told = explain([there], on=there, name="jobs/batch")

    found = named(told, "pod.held")
    assert found.severity == "warning"
    assert found.text == (
        "CPU limit: the best-effort pods of node-1 may use 20m, and request 500m together; "
        "this pod was throttled in 90% of its periods"
    )
    assert "lint.idle" not in names(told)


@pytest.mark.parametrize(
    ("quota_us", "use", "idle"),
    [
        pytest.param(None, {}, True, id="no limit"),
        pytest.param(80_000, {"periods": 10, "throttled_periods": 0}, True, id="a limit that it does not feel"),
        pytest.param(2_000, {}, False, id="a limit on the tier that is used up"),
    ],
)
def test_a_pod_that_uses_little_of_its_own_accord_asks_for_too_much(
    quota_us: int | None, use: dict[str, int], *, idle: bool
) -> None:
    there = limited(quota_us, **use)
    told = explain([there], on=there, name="jobs/batch")

    assert ("lint.idle" in names(told)) is idle
    assert ("pod.held" in names(told)) is (quota_us is not None)


def test_a_pod_that_came_past_the_webhook_says_what_it_lacks() -> None:
    lack = LackedMark(profile="batch", field="metadata.labels[koordinator.sh/qosClass]", wanted="BE", found=None)
    missed = MissedPod(
        pod_uid="be", namespace="jobs", name="batch", phase="Running", created_ms=1, found_ms=2, lacks=[lack]
    )
    there = node()
    log = PodLog(nodes=[there], on=there, outcomes=[], span_ms=HOUR_MS, missed=missed)
    told = explain_pod(log, "jobs", "batch", None, NOW_MS)
    assert told is not None

    found = named(told, "pod.missed")
    assert "metadata.labels[koordinator.sh/qosClass] is absent, profile batch sets BE" in found.text
    assert "delete it" in found.advice


def test_a_running_pod_is_found_by_its_nodes_figures() -> None:
    there = node()
    told = explain([there], on=there, name="jobs/batch")

    assert told.node == "node-1"
    assert told.running is not None
    assert told.running.use.cpu_milli == 500
    assert (told.qos, told.priority_class) == ("BE", "koord-batch")
    assert told.rooms == []
    assert told.pod_place is not None


@pytest.mark.parametrize("stale_ms", [0, 60_000])
def test_a_pod_is_where_it_was_seen_last_by_the_logs_clock(stale_ms: int) -> None:
    """A set's pod has moved from a node that died; that node's clock was a year ahead, its figures are said again."""
    old, new = node("node-1"), node("node-2")
    assert old.metric is not None
    assert new.metric is not None
    body, place = old.metric.body, old.metric.place
    later_ms = place.logged_ms + (30_000 if stale_ms else -30_000)
    ahead = Logged(
        body=msgspec.structs.replace(body, observed_ms=body.observed_ms + 365 * 24 * HOUR_MS, stale_ms=stale_ms),
        place=dataclasses.replace(place, logged_ms=later_ms),
    )
    told = explain([dataclasses.replace(old, metric=ahead), new], name="jobs/batch")

    assert told.node == "node-2"


def test_a_pod_that_its_node_lists_and_nobody_measures_is_on_that_node() -> None:
    """It is about to start, or has ended: it does not wait for a node."""
    young = msgspec.structs.replace(BATCH, uid="young", name="young", phase="Pending")
    chain = Chain(pods=[SERVICE, BATCH, young])
    chain.run(1, 12)
    there = node_log("node-1", chain.records)
    told = explain([there], on=there, name="jobs/young")

    assert (told.node, told.running, told.rooms) == ("node-1", None, [])
    assert named(told, "pod.unmeasured").text.startswith("node-1 lists the pod as Pending, but has no figures of it")


def test_a_pod_whose_group_outlives_it_is_said() -> None:
    """Deleted, and not gone yet: figures tell of it still."""
    there = node()
    chain = Chain(pods=[SERVICE])
    chain.run(1, 1)
    told = explain([there], on=node_log("node-1", chain.records), name="jobs/batch")

    assert told.node == "node-1"
    assert "but the node's pod list does not contain it" in named(told, "pod.unlisted").text


def test_of_a_pod_that_nothing_is_said_of_there_is_no_explanation() -> None:
    log = PodLog(nodes=[node()], on=None, outcomes=[], span_ms=HOUR_MS)

    assert explain_pod(log, "jobs", "nobody", None, NOW_MS) is None


def spent(number: int) -> Spent:
    return Spent(evictions=number)


def test_each_eviction_is_told_with_rule_threshold_observed_value_and_end() -> None:
    """What the agent says of one eviction are two outcomes: that the pod was asked to go, and how it went."""
    begin = evicted(3, reason="SIGTERM, and SIGKILL after 30000 ms", spent=spent(1))
    end = evicted(3, bound="ended", reason="ended by itself after 800 ms", command_id="end")
    told = explain([node()], outcomes=[begin, end])

    [one] = told.evictions
    assert (one.rule, one.observed, one.ended) == (
        "BEMemoryEvict", "83% used, threshold 70%", "ended by itself after 800 ms",
    )  # fmt: skip
    assert (one.spent, one.done, [place.offset for place in one.places]) == (1, True, [0, 1])
    assert named(told, "evicted").text == (
        "evicted once in the last 1 h: BEMemoryEvict 1; last: 83% used, threshold 70%"
    )


def test_pods_of_the_same_controller_count_and_others_do_not() -> None:
    outcomes = [
        evicted(1, spent=spent(1)),
        evicted(2, "etl-9k4tz", spent=spent(2)),
        evicted(3, "report-9k4tz", spent=spent(3)),
        evicted(4, "etl-9k4tz", "other", spent=spent(4)),
    ]
    told = explain([node()], outcomes=outcomes)

    assert [one.name for one in told.evictions] == ["etl-9k4tz", "etl-x2lqp"]
    assert "evicted once in the last 1 h, 1 of other pods of etl" in named(told, "evicted").text


def test_often_is_a_problem_with_something_to_do() -> None:
    told = explain([node()], outcomes=[evicted(seq, spent=spent(seq)) for seq in range(1, 5)])

    found = named(told, "evicted")
    assert found.severity == "problem"
    assert "colocation-config.memoryReclaimThresholdPercent" in found.advice
    assert told.evictions[0].acted_ms > told.evictions[-1].acted_ms


def test_an_eviction_without_credit_was_held_back() -> None:
    told = explain([node()], outcomes=[evicted(1, result="refused", reason=NO_CREDIT, count=7, spent=spent(0))])

    assert named(told, "eviction.no-credit").text.startswith("7 evictions were selected")
    assert named(told, "evicted").severity == "ok"
    assert told.evictions[0].done is False


@pytest.mark.parametrize(
    ("name", "controller"),
    [
        ("checkout-7d9f8b6c5-x2lqp", "checkout-7d9f8b6c5"),
        ("etl-x2lqp", "etl"),
        ("db-0", "db"),
        ("lonely", ""),
        ("my-pod", ""),
    ],
)
def test_a_pods_name_tells_its_controller_where_it_has_one(name: str, controller: str) -> None:
    assert controller_of(name) == controller


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"threshold_pct": 70, "used_pct": 83}, "83% used, threshold 70%"),
        ({"average_satisfied_ratio": 0.25, "lower_pct": 40}, "25% of the requested CPU was available, threshold 40%"),
        (
            {"threshold_pct": 80, "allocatable_milli": 2_000, "requested_milli": 3_000},
            "150% of the batch allocatable was requested, threshold 80%",
        ),
        (
            {"threshold_pct": 80, "allocatable_bytes": 0, "requested_bytes": 3_000},
            "more than 100% of the batch allocatable was requested, threshold 80%",
        ),
        ({"other": 1}, ""),
    ],
)
def test_threshold_against_observed_value_by_rule(terms: dict[str, float], text: str) -> None:
    assert observed(terms) == text


def linted(pod_: Pod | None = None, document: dict[str, Any] | None = None) -> set[str]:
    """Names of what is found; ``pod_``: how it runs on the node."""
    if pod_ is None:
        return {name for name in names(explain([node()], document)) if name.startswith("lint")}
    policy = policy_of(Colocation(enable=True, metric_aggregate_duration_s=10), ResourceThreshold())
    chain = Chain(policy, pods=[SERVICE, pod_])
    chain.run(1, 12)
    there = node_log("node-1", chain.records)
    told = explain([there], on=there, name="jobs/batch")
    return {name for name in names(told) if name.startswith("lint")}


ASKED = Resources(batch_cpu_milli=600, batch_mem_bytes=2 * GIB)
GOOD = msgspec.structs.replace(BATCH, priority=5_000, requests=ASKED, limits=ASKED)
"""It uses 500 millicores and 2 GiB."""


def test_a_pod_made_well_has_nothing_to_be_said_of_it() -> None:
    assert linted(GOOD) == set()
    assert linted(document=pod()) == set()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"requests": Resources(), "limits": Resources()}, "lint.requests", id="asks for nothing"),
        pytest.param({"limits": Resources()}, "lint.limits", id="no limit"),
        pytest.param(
            {"limits": Resources(batch_cpu_milli=900, batch_mem_bytes=2 * GIB)}, "lint.equal", id="limit above request"
        ),
        pytest.param(
            {"requests": (much := Resources(batch_cpu_milli=2_000, batch_mem_bytes=2 * GIB)), "limits": much},
            "lint.idle",
            id="asks for four times what it uses",
        ),
        pytest.param(
            {"requests": (little := Resources(batch_cpu_milli=600, batch_mem_bytes=GIB)), "limits": little},
            "lint.over",
            id="uses twice the memory that it asked for",
        ),
        pytest.param({"priority": 9_100}, "lint.class", id="best-effort with a production priority"),
        pytest.param({"priority": 6_500}, "lint.band", id="a priority between the bands"),
        pytest.param({"priority": None}, "lint.band", id="no priority"),
    ],
)
def test_what_invites_trouble_is_named(changes: dict[str, Any], found: str) -> None:
    assert found in linted(msgspec.structs.replace(GOOD, **changes))


@pytest.mark.parametrize(("named", "found"), [("koord-batch", set()), ("koord-prod", {"lint.class"})])
def test_a_manifest_has_the_priority_that_its_class_will_give_it(named: str, found: set[str]) -> None:
    """The API server writes the number when the pod is made."""
    assert linted(document=pod(priority=None, priorityClassName=named)) == found


def test_native_amounts_of_a_best_effort_pod_were_not_translated() -> None:
    native = {"cpu": "1", "memory": "1Gi"}
    told = explain([node()], pod(containers=[{"name": "main", "resources": {"requests": native, "limits": native}}]))

    found = [one for one in told.findings if one.name == "lint.requests"]
    assert [(one.severity, one.text) for one in found] == [
        ("problem", f"main: neither a request nor a limit for batch-{name}; it requests native {name} instead")
        for name in ("cpu", "memory")
    ]


@pytest.mark.parametrize("qos", ["BE", None])
@pytest.mark.parametrize("asked", [Resources(), Resources(cpu_milli=100, mem_bytes=GIB)])
def test_a_free_pod_is_told_to_ask_for_nothing(qos: str | None, asked: Resources) -> None:
    """Nobody sells free resources: a pod that asked for some would wait for ever."""
    free = msgspec.structs.replace(GOOD, priority=3_000, qos_label=qos, requests=asked, limits=asked)

    assert linted(free) == set()


def owned(kind: str) -> dict[str, Any]:
    made = pod()
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "etl", "controller": True}] if kind else []
    return made


def behind(selector: dict[str, str], namespace: str = "jobs") -> dict[str, Any]:
    service = {"kind": "Service", "metadata": {"name": "web", "namespace": namespace}, "spec": {"selector": selector}}
    return {"kind": "List", "items": [service, pod()]}


@pytest.mark.parametrize(
    ("document", "found"),
    [
        pytest.param(owned("StatefulSet"), {"lint.stateful"}, id="a StatefulSet's"),
        pytest.param(owned("Job"), set(), id="a Job's"),
        pytest.param(owned(""), {"lint.bare"}, id="nobody's"),
        pytest.param(behind({"app": "etl"}), {"lint.service"}, id="behind a Service"),
        pytest.param(behind({"app": "web"}), set(), id="another's Service"),
        pytest.param(behind({"app": "etl"}, "shop"), set(), id="a Service of another namespace"),
        pytest.param(behind({}), set(), id="a Service without a selector"),
    ],
)
def test_its_file_tells_who_makes_it_and_who_calls_it(document: dict[str, Any], found: set[str]) -> None:
    assert linted(document=document) == found


def test_a_file_without_the_pod_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError, match=r"pod\.yaml: kind: jobs/etl-x2lqp: accepted: Pod jobs/other"):
        manifest_of(pod(), "pod.yaml", "jobs", "other")


def test_a_bad_field_of_the_pod_is_refused_by_its_path() -> None:
    with pytest.raises(ConfigError, match=r"pod\.spec\.containers\[0\]\.resources\.requests"):
        manifest(pod(containers=asking("much")))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        pytest.param({"status": {"conditions": 4}}, "pod.status.conditions", id="conditions"),
        pytest.param({"metadata": POD["metadata"] | {"ownerReferences": 7}}, "ownerReferences", id="owners"),
        pytest.param(
            {"spec": {"affinity": required({"values": 4})}},
            "matchExpressions.values",
            id="values",
        ),
        pytest.param(
            {"spec": {"affinity": required(5)}},
            "matchExpressions: 5",
            id="an expression",
        ),
    ],
)
def test_what_should_be_a_list_and_is_none_is_refused_by_its_path(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        manifest(copy.deepcopy(POD) | changes)


def test_a_manifest_that_was_not_applied_yet_can_be_looked_at() -> None:
    """It has no uid, no status and no namespace."""
    document = pod()
    del document["metadata"]["uid"], document["status"]

    assert manifest(document).pod.name == "etl-x2lqp"


def test_for_a_terminal_there_is_a_table_of_nodes_and_one_of_evictions() -> None:
    there = node(pool="web")
    told = explain([there], pod(nodeSelector={"pool": "batch"}), [evicted(1, spent=spent(1))])
    text = pod_text(told)

    assert "pod jobs/etl-x2lqp, on no node, BE, koord-batch" in text
    assert "requested: batch-cpu 1,000m, batch-memory 1,024 MiB" in text
    assert f"{batch_cpu(there) - 500:,}m / {batch_cpu(there):,}m" in text
    assert "nodeSelector requires pool=batch, the node has pool=web" in text
    assert "83% used, threshold 70%" in text


PASS = DeschedulingPass(
    epoch=4,
    number=6,
    decided_ms=NOW_MS - 5_000,
    policy_version="v",
    dry_run=True,
    bound="acted",
    terms={"over_nodes": 1},
    sources=[
        SourceNode(
            node="node-1",
            load_class="high",
            bound="relieved",
            terms={"row_passes": 6, "tolerated_passes": 5, "used_pct": 90.0, "threshold_pct": 65.0},
            staying=[StayingPods(reason="not_best_effort", count=3)],
        )
    ],
    victims=[
        Victim(
            pod_uid="uid-etl",
            namespace="jobs",
            name="etl-x2lqp",
            node="node-1",
            terms={
                "used_pct": 90.0,
                "threshold_pct": 65.0,
                "used_cpu_milli": 7_200,
                "high_cpu_milli": 5_200,
                "pod_cpu_milli": 2_100,
            },
        )
    ],
)


def descheduled(*passes: DeschedulingPass, name: str = "etl-x2lqp", policy: Policy | None = None) -> PodExplanation:
    """A pod on node-1, by passes of which each came a minute after the one before."""
    records = [
        Record(topic=DESCHEDULING.name, partition=0, offset=offset, timestamp_ms=one.decided_ms, key=b"k",
               value=encode(one), headers=())
        for offset, one in enumerate(passes)
    ]  # fmt: skip
    found = looks(logged(records, DESCHEDULING, DeschedulingPass), "jobs", name)
    there = node()
    if policy is not None:
        assert there.policy is not None
        there = dataclasses.replace(there, policy=dataclasses.replace(there.policy, body=policy))
    log = PodLog(nodes=[there], on=None, outcomes=[], span_ms=HOUR_MS, looks=found)
    document = pod(nodeName="node-1")
    document["metadata"]["name"] = name
    told = explain_pod(log, "jobs", name, manifest_of(document, "pod.yaml", "jobs", name), NOW_MS)
    assert told is not None
    return told


def test_a_pod_that_a_pass_would_evict_is_told_why_with_the_numbers() -> None:
    later = msgspec.structs.replace(PASS, number=7, bound="none_over", sources=[], victims=[])

    finding = named(descheduled(PASS, later), "descheduling.chosen")

    assert finding.severity == "note"
    assert finding.text == (
        "pass 4/6, 5 s ago (slacktide.cluster.descheduling.v1 0:0), selected it for eviction, but only "
        "reports it (dryRun): "
        "node-1 is over its thresholds, 90% used, threshold 65%; cpu used 7,200m, threshold 5,200m, the "
        "pod's share 2,100m"
    )
    acting = named(descheduled(msgspec.structs.replace(PASS, dry_run=False)), "descheduling.chosen")
    assert acting.severity == "warning"
    assert "selected it for eviction: node-1 is over" in acting.text


def test_a_pod_that_no_pass_chose_is_told_why_it_stays() -> None:
    def why(**other: Any) -> str:
        finding = named(descheduled(msgspec.structs.replace(PASS, **other), name="other"), "descheduling.stays")
        return finding.text.partition("did not select it: ")[2]

    assert why() == (
        "node-1 is over its thresholds, 90% used, threshold 65%; evicting other pods was enough; not "
        "evicted: 3 not_best_effort"
    )
    waiting = msgspec.structs.replace(
        PASS.sources[0], bound="waiting", staying=[], terms=PASS.sources[0].terms | {"row_passes": 2}
    )
    assert why(sources=[waiting], bound="none_lasting", victims=[]).endswith(
        "it has not been over its thresholds for long enough (2 of 5 passes tolerated)"
    )
    assert why(sources=[], bound="none_over", victims=[]) == "no node is over its high thresholds"
    assert why(sources=[]) == "node-1 is not over its high thresholds"


def test_passes_that_are_wanted_and_do_not_come_are_told_and_others_not_missed() -> None:
    wants = policy_from(descheduling={"lowThresholds": {"cpu": 45}, "highThresholds": {"cpu": 65}})

    assert named(descheduled(policy=wants), "descheduling.silent").severity == "warning"
    assert not any(name.startswith("descheduling") for name in names(descheduled()))


def placed(**said: Any) -> PodPlacement:
    return PodPlacement(pod_uid="uid-etl", namespace="jobs", name="etl-x2lqp", decided_ms=NOW_MS - 2_000, **said)


def with_placement(*placements: PodPlacement, document: dict[str, Any] | None = None) -> PodExplanation | None:
    records = [
        Record(topic=PLACEMENT.name, partition=0, offset=offset, timestamp_ms=one.decided_ms, key=b"k",
               value=encode(one), headers=())
        for offset, one in enumerate(placements)
    ]  # fmt: skip
    last = last_placement(logged(records, PLACEMENT, PodPlacement), "jobs", "etl-x2lqp")
    log = PodLog(nodes=[node()], on=None, outcomes=[], span_ms=HOUR_MS, placement=last)
    return explain_pod(log, "jobs", "etl-x2lqp", None if document is None else manifest(document), NOW_MS)


def test_what_a_scheduler_was_told_last_is_told_without_the_pods_file() -> None:
    """Of a pod that no node takes: why each refuses it."""
    refused = [
        RefusingNodes(reason="batch_short:cpu", count=2, nodes=["node-1", "node-2"]),
        RefusingNodes(reason="stale", count=1, nodes=["node-3"]),
    ]
    told = with_placement(
        placed(asked=1, passed=1), placed(asked=3, passed=0, refused=refused), placed(asked=0, passed=0)
    )
    assert told is not None
    assert told.placement is not None
    assert told.placement.body.asked == 0
    told = with_placement(placed(asked=1, passed=1), placed(asked=3, passed=0, refused=refused))
    assert told is not None
    finding = named(told, "pending.refused")
    assert finding.severity == "problem"
    assert finding.text == (
        "the scheduler asked about 3 nodes, and none accepts the pod: "
        "batch_short:cpu on 2 (node-1, node-2); stale on 1 (node-3)"
    )
    text = pod_text(told)
    assert "scheduler request 2.0 s ago: 0 of 3 nodes accept the pod (slacktide.pod.placement.v1 0:1)" in text
    assert "  2 batch_short:cpu: node-1, node-2" in text
    assert text.startswith("pod jobs/etl-x2lqp, on no node\n")


def test_the_best_nodes_are_told_with_their_arithmetic() -> None:
    terms = {
        "existing_milli": 1_000, "pod_milli": 850, "used_milli": 1_850, "allocatable_milli": 8_000, "cpu_score": 76,
        "left_milli": 3_000, "most_left_milli": 6_000, "load_score": 70, "load_weight": 1, "balance_permille": 500,
        "balance_weight": 1, "score_permille": 600,
    }  # fmt: skip
    best = [
        RankedNode(node="node-1", level=10, score_permille=600, bound="scored", terms=terms),
        RankedNode(node="node-2", level=0, score_permille=0, bound="stale"),
    ]
    told = with_placement(placed(asked=2, passed=2, best=best), document=pod())
    assert told is not None
    assert "pending.refused" not in names(told)
    assert pod_text(told).startswith("pod jobs/etl-x2lqp, on no node with figures,")
    first, second = (line for line in pod_text(told).splitlines() if line.startswith(("node-1  10", "node-2  0")))
    assert " ".join(first.split()) == "node-1 10 60.0 70 x 1 1,850m / 8,000m - 50.0 x 1 3,000m / 6,000m -"
    assert second.split()[:4] == ["node-2", "0", "0.0", "(stale)"]


def test_a_pod_of_another_namespace_is_another() -> None:
    other = msgspec.structs.replace(placed(asked=1, passed=1), namespace="else")
    assert with_placement(other) is None


@pytest.mark.parametrize(
    ("refused", "asked", "found"),
    [
        ("job-", "job-x7k2p", True),
        ("job-", "job", True),
        ("job", "job", True),
        ("job", "jobs", False),
        ("job-", "a", False),
    ],
)
def test_a_pod_that_its_namespaces_quota_refused_is_found_by_its_controllers_name(
    refused: str, asked: str, *, found: bool
) -> None:
    body = RefusedPod(
        namespace="team-a",
        name=refused,
        resource="batch_cpu_milli",
        asked=2_000,
        used=7_000,
        bound=8_000,
        refused_ms=NOW_MS - 5_000,
    )
    place = Place(topic="slacktide.pod.refused.v1", partition=0, offset=0, logged_ms=NOW_MS)
    told = explain_pod(
        PodLog(
            nodes=[], on=None, outcomes=[], span_ms=1, refused=last_refused([Logged(body=body, place=place)], asked)
        ),
        "team-a",
        asked,
        None,
        NOW_MS,
    )

    assert (told is not None) == found
    if told is not None:
        [finding] = [one for one in told.findings if one.name == "pod.quota"]
        assert finding.text == (
            "rejected 5 s ago by the quota of namespace team-a: it requests batch-cpu 2,000m, pods there request "
            "7,000m, the limit is 8,000m"
        )
