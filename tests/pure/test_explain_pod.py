"""Why a pod waits, why it is evicted, and whether it is made as a best-effort pod should be."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from slacktide.deploy.cli.explain.workload_text import pod_text
from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.missed_pod import LackedMark, MissedPod, RefusedPod
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, PodUse
from slacktide.schemas.topics import DESCHEDULING, OUTCOME, PLACEMENT, Topic
from slacktide.streams.analysis.explain.evictions import controller_of, looks, observed
from slacktide.streams.analysis.explain.evidence import Logged, Place, logged
from slacktide.streams.analysis.explain.held import tier_held_findings
from slacktide.streams.analysis.explain.manifest import Manifest, manifest_of
from slacktide.streams.analysis.explain.node_log import NodeLog, node_log
from slacktide.streams.analysis.explain.pod import PodExplanation, PodLog, explain_pod, last_placement, last_refused
from slacktide.streams.records import Record
from testbed.chains import Chain, evicted, outcome_record
from testbed.chains import logged as record_of
from testbed.policies import policy_from
from testbed.samples import BATCH, FACTS, GIB, SERVICE, START_MS
from testbed.snapshots import cases, findings, json_text, refusal, situations, stable
from testbed.vectors import changed, each_row

HOUR_MS = 3_600_000
NOW_MS = START_MS + 12_100
CASES = cases(__file__)
POD: dict[str, Any] = CASES["pod"]


def pod(**spec: Any) -> dict[str, Any]:
    """The pod as kubectl prints it, with other fields in its spec."""
    made = copy.deepcopy(POD)
    made["spec"] |= spec
    return made


def asking(cpu: str, memory: str = "1Gi") -> list[dict[str, Any]]:
    """Containers that request so much."""
    requests = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    return [{"name": "main", "resources": {"requests": requests, "limits": requests}}]


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
    name: str = "jobs/etl-x2lqp",
    now_ms: int = NOW_MS,
    **log: Any,
) -> PodExplanation:
    """``log``: more of what the log holds of the pod."""
    acts = logged([outcome_record(one, offset) for offset, one in enumerate(outcomes or [])], OUTCOME, NodeOutcome)
    seen = PodLog(**{"nodes": nodes, "on": None, "outcomes": acts, "span_ms": HOUR_MS} | log)
    its = None if document is None else manifest_of(document, "pod.yaml", *name.split("/"))
    told = explain_pod(seen, *name.split("/"), its, now_ms)
    assert told is not None
    return told


def required(*expressions: Any) -> dict[str, Any]:
    """Node affinity; each expression is a term of its own, and None an empty one."""
    terms = [{} if one is None else {"matchExpressions": [one]} for one in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def waits(*nodes: NodeLog, cpu: str = "200", document: dict[str, Any] | None = None, **spec: Any) -> PodExplanation:
    """What is explained of a pod that waits."""
    wanted = {"containers": asking(cpu)} | spec
    return explain(list(nodes), pod(**wanted) if document is None else document)


def on_web(*expressions: Any) -> PodExplanation:
    """What is explained of a pod whose affinity requires one of these, where the one node is of the pool web."""
    return waits(node(pool="web"), affinity=required(*expressions))


def native(**resources: dict[str, str]) -> dict[str, Any]:
    return pod(containers=[{"name": "main", "resources": resources}])


def cordoned(name: str) -> NodeLog:
    chain = Chain(facts=msgspec.structs.replace(FACTS, name=name, unschedulable=True))
    chain.run(1, 12)
    return node_log(name, chain.records)


def without_status() -> dict[str, Any]:
    """A pod that no scheduler looked at."""
    return pod(containers=asking("200")) | {"status": {"phase": "Pending"}}


def refused_by_the_scheduler() -> dict[str, Any]:
    made = pod()
    made["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]
    return made


def not_created() -> dict[str, Any]:
    """A manifest that was not applied yet: it has no uid and no status."""
    made = without_status()
    del made["metadata"]["uid"], made["status"]
    return made


def unscored() -> NodeLog:
    return dataclasses.replace(node(), score=None)


def stale(there: NodeLog) -> NodeLog:
    """The same, silent for 12 s."""
    assert there.allocatable is not None
    body = msgspec.structs.replace(there.allocatable.body, stale_ms=12_000)
    return dataclasses.replace(there, allocatable=Logged(body=body, place=there.allocatable.place))


POOL_EXISTS = {"key": "pool", "operator": "Exists"}
GPU_EXISTS = {"key": "gpu", "operator": "Exists"}
SOLD_MILLI = 1_400
"""Of ``node()``, to all pods together; 500 of it are taken."""
NATIVE = {"cpu": "1", "memory": "1Gi"}


GT = required({"key": "cores", "operator": "Gt", "values": ["4"]}) | {"podAntiAffinity": {"x": 1}}


@situations(
    "told",
    {
        "it would fit, on a node that is named": lambda: waits(node()),
        "what others asked for is not left": lambda: waits(node(), cpu=str(SOLD_MILLI - 400)),
        "without a score, what is left is told by the node's pods": lambda: waits(unscored(), cpu="1000"),
        "the node that comes nearest is named": lambda: waits(
            node("node-1"), node("node-2", cpu_milli=8_000), containers=asking("3500", "64Gi")
        ),
        "more than any node sells to all pods together is too high": lambda: waits(node(), cpu="9000"),
        "a selector that no node meets names the label and what is there": lambda: waits(
            node(pool="web"), nodeSelector={"pool": "batch"}
        ),
        "affinity, one of its values": lambda: on_web({"key": "pool", "operator": "In", "values": ["web", "db"]}),
        "affinity, a value that is ruled out": lambda: on_web({"key": "pool", "operator": "NotIn", "values": ["web"]}),
        "affinity, a label that is not there": lambda: on_web(GPU_EXISTS),
        "affinity, one of the terms": lambda: on_web(GPU_EXISTS, POOL_EXISTS),
        "an empty term of affinity matches no node": lambda: on_web(None),
        "an empty term of affinity beside one that matches": lambda: on_web(None, POOL_EXISTS),
        "what cannot be judged here": lambda: waits(node(), affinity=GT),
        "another scheduler does not know batch resources": lambda: waits(node(), schedulerName="default-scheduler"),
        "a node that sells nothing says why": lambda: waits(node(enable=False)),
        "a stale node takes no pod": lambda: waits(stale(node())),
        "figures that nobody says again are no room": lambda: explain(
            [node()], pod(containers=asking("200")), now_ms=NOW_MS + HOUR_MS
        ),
        "native amounts need no figures": lambda: explain([node()], native(requests=NATIVE), now_ms=NOW_MS + HOUR_MS),
        "of native amounts it is said that others are not counted": lambda: waits(
            node(), document=native(requests=NATIVE, limits=NATIVE)
        ),
        "without any node": waits,
        "the scheduler's own words are repeated": lambda: waits(node(), document=refused_by_the_scheduler()),
        "no scheduler looked at it, a problem": lambda: waits(node(), document=without_status()),
        "a manifest that was not created waits for no scheduler": lambda: waits(node(), document=not_created()),
        "cordoned nodes have no room": lambda: waits(cordoned("node-1"), cordoned("node-2")),
        "beside a cordoned node the others are named": lambda: waits(cordoned("node-1"), node("node-2")),
    },
)
def test_why_a_pod_waits(told: Callable[[], PodExplanation], snapshot) -> None:
    assert stable(pod_text(told())) == snapshot


@situations(
    "other",
    {
        "cordoned": lambda: (cordoned("node-2"), {}),
        "stale": lambda: (stale(node("node-2", cpu_milli=8_000)), {}),
        "other labels": lambda: (node("node-2", cpu_milli=8_000, pool="web"), {"nodeSelector": {"pool": "batch"}}),
    },
)
@pytest.mark.parametrize("asked", ["800", "1100"], ids=["short", "too high"])
def test_a_node_with_room_that_does_not_count_is_named_beside_those_that_are_short(
    other: Callable[[], tuple[NodeLog, dict[str, Any]]], asked: str, snapshot
) -> None:
    there, wanted = other()
    told = explain([node("node-1", cpu_milli=3_000, pool="batch"), there], pod(containers=asking(asked), **wanted))
    assert pod_text(told) == snapshot


BOUGHT = Resources(batch_cpu_milli=500, batch_mem_bytes=GIB)
BUYER = msgspec.structs.replace(BATCH, priority=5_000, requests=BOUGHT, limits=BOUGHT)


def limited(quota_us: int | None, **use: Any) -> NodeLog:
    """A node whose best-effort pods have that quota, and whose batch pod uses 20 millicores."""
    chain = Chain(pods=[SERVICE, BUYER])
    used = PodUse(uid=BUYER.uid, cpu_milli=20, mem_bytes=GIB, best_effort_group=True, **use)
    chain.run(1, 12, pod_use=[used], limits=Limits(be_cfs_quota_us=quota_us))
    return node_log("node-1", chain.records)


def running(there: NodeLog, name: str = "batch", **log: Any) -> PodExplanation:
    """A pod of its node, of which there is no file."""
    return explain([there], on=there, name=f"jobs/{name}", **log)


def of_pods(*pods: Pod, seconds: int = 12) -> NodeLog:
    chain = Chain(pods=pods)
    chain.run(1, seconds)
    return node_log("node-1", chain.records)


def missed(owner_kind: str = "") -> MissedPod:
    lack = LackedMark(profile="batch", field="metadata.labels[koordinator.sh/qosClass]", wanted="BE", found=None)
    return MissedPod(
        pod_uid="be",
        namespace="jobs",
        name="batch",
        phase="Running",
        created_ms=1,
        found_ms=2,
        lacks=[lack],
        owner_kind=owner_kind,
    )


YOUNG = msgspec.structs.replace(BATCH, uid="young", name="young", phase="Pending")


@situations(
    "told",
    {
        "it is held, and does not ask for too much": lambda: running(limited(2_000, periods=10, throttled_periods=9)),
        "without a limit it uses little of its own accord": lambda: running(limited(None)),
        "a limit that it does not feel": lambda: running(limited(80_000, periods=10, throttled_periods=0)),
        "a limit on the tier that is used up": lambda: running(limited(2_000)),
        "a limit below what the pods request, of which it uses little": lambda: running(limited(30_000)),
        "it came past the webhook and says what it lacks": lambda: running(node(), missed=missed()),
        "past the webhook, of a Job that a deleted pod may end": lambda: running(node(), missed=missed("Job")),
        "past the webhook, of one that creates it again": lambda: running(node(), missed=missed("ReplicaSet")),
        "past the webhook, of a kind that is not known": lambda: running(node(), missed=missed("RayCluster")),
        "it is found by its node's figures": lambda: running(node()),
        "its node lists it and nobody measures it: it is about to start, or has ended": lambda: running(
            of_pods(SERVICE, BATCH, YOUNG), "young"
        ),
        "its annotation cannot be read": lambda: running(
            of_pods(SERVICE, msgspec.structs.replace(BATCH, ignored=["metadata.annotations[\"a\"]: '[': ignored"]))
        ),
        "deleted, and not gone yet: its group outlives it": lambda: explain(
            [node()], on=of_pods(SERVICE, seconds=1), name="jobs/batch"
        ),
    },
)
def test_how_a_running_pod_fares(told: Callable[[], PodExplanation], snapshot) -> None:
    found = told()
    assert not {"pod.held", "lint.idle"} <= {one.name for one in found.findings}, "idle advice while it is held"
    assert stable(pod_text(found)) == snapshot


def by_cpus(cpus: list[int], *, used_milli: int) -> NodeLog:
    """A node whose policy limits best-effort pods by CPU set, so without a quota."""
    pods = [SERVICE, msgspec.structs.replace(BUYER, requests=Resources(batch_cpu_milli=1_500))]
    use = PodUse(uid=BUYER.uid, cpu_milli=used_milli, mem_bytes=GIB, best_effort_group=True)
    chain = Chain(pods=pods)
    chain.run(1, 12, pod_use=[use], limits=Limits(be_cfs_quota_us=None, be_cpuset=cpus))
    return node_log("node-1", chain.records)


@each_row("cpus", "used_milli", "told")
def test_a_limit_by_cpus_is_told_as_one_by_quota(cpus: list[int], used_milli: int, told: set[str]) -> None:
    """The node's own ``cpu_suppressed`` counts both: one fact, one word."""
    on = by_cpus(cpus, used_milli=used_milli)
    found = {one.name for one in running(on).findings}
    assert found & {"pod.held", "pod.limit", "lint.idle"} == told
    assert ("pod.held" in found) == any(one.name == "batch.held" for one in tier_held_findings(on))


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


def test_of_a_pod_that_nothing_is_said_of_there_is_no_explanation() -> None:
    log = PodLog(nodes=[node()], on=None, outcomes=[], span_ms=HOUR_MS)

    assert explain_pod(log, "jobs", "nobody", None, NOW_MS) is None


def spending(seq: int, *name: str, spent: int = 1, **changes: Any) -> NodeOutcome:
    return evicted(seq, *name, spent=Spent(evictions=spent), **changes)


@situations(
    "outcomes",
    {
        # What the agent says of one eviction are two outcomes: that the pod was asked to go, and how it went.
        "one, with rule, threshold, observed value and end": [
            spending(3, reason="SIGTERM, and SIGKILL after 30000 ms"),
            evicted(3, bound="ended", reason="ended by itself after 800 ms", command_id="end"),
        ],
        "pods of the same controller count and others do not": [
            spending(1),
            spending(2, "etl-9k4tz", spent=2),
            spending(3, "report-9k4tz", spent=3),
            spending(4, "etl-9k4tz", "other", spent=4),
        ],
        "often is a problem with something to do": [spending(seq, spent=seq) for seq in range(1, 5)],
        "without credit it was held back": [spending(1, spent=0, result="refused", reason=NO_CREDIT, count=7)],
    },
)
def test_each_eviction_is_told(outcomes: list[NodeOutcome], snapshot) -> None:
    told = explain([node()], outcomes=outcomes)
    assert f"{pod_text(told)}\n\n{json_text(told.evictions)}" == snapshot


@each_row("name", "controller")
def test_a_pods_name_tells_its_controller_where_it_has_one(name: str, controller: str) -> None:
    assert controller_of(name) == controller


@each_row("terms", "text")
def test_threshold_against_observed_value_by_rule(terms: dict[str, float], text: str) -> None:
    assert observed(terms) == text


def lint(pod_: Pod | None = None, document: dict[str, Any] | None = None) -> str:
    """What is found; ``pod_``: how it runs on the node."""
    if pod_ is None:
        return findings(explain([node()], document).findings, "lint")
    policy = policy_of(Colocation(enable=True, metric_aggregate_duration_s=10), ResourceThreshold())
    chain = Chain(policy, pods=[SERVICE, pod_])
    chain.run(1, 12)
    return findings(running(node_log("node-1", chain.records)).findings, "lint")


def both(cpu_milli: int, gib: int) -> dict[str, Resources]:
    asked = Resources(batch_cpu_milli=cpu_milli, batch_mem_bytes=gib * GIB)
    return {"requests": asked, "limits": asked}


GOOD = msgspec.structs.replace(BATCH, priority=5_000, **both(600, 2))
"""It uses 500 millicores and 2 GiB."""


def test_a_pod_made_well_has_nothing_to_be_said_of_it() -> None:
    assert lint(GOOD) == ""
    assert lint(document=pod()) == ""
    assert lint(document=pod(priority=None, priorityClassName="koord-batch")) == "", "the API server writes the number"


@each_row("changes")
def test_what_invites_trouble_is_named(changes: dict[str, Any], snapshot) -> None:
    assert lint(changed(GOOD, changes)) == snapshot


@pytest.mark.parametrize("qos", ["BE", None])
@pytest.mark.parametrize("asked", [Resources(), Resources(cpu_milli=100, mem_bytes=GIB)])
def test_a_free_pod_is_told_to_ask_for_nothing(qos: str | None, asked: Resources) -> None:
    """Nobody sells free resources: a pod that asked for some would wait for ever."""
    free = msgspec.structs.replace(GOOD, priority=3_000, qos_label=qos, requests=asked, limits=asked)

    assert lint(free) == ""


def owned(kind: str) -> dict[str, Any]:
    made = pod()
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "etl", "controller": True}] if kind else []
    return made


def behind(selector: dict[str, str], namespace: str = "jobs") -> dict[str, Any]:
    service = {"kind": "Service", "metadata": {"name": "web", "namespace": namespace}, "spec": {"selector": selector}}
    return {"kind": "List", "items": [service, pod()]}


@situations(
    "document",
    {
        "a production priority by its class": pod(priority=None, priorityClassName="koord-prod"),
        "a StatefulSet's": owned("StatefulSet"),
        "a Job's": owned("Job"),
        "nobody's": owned(""),
        "behind a Service": behind({"app": "etl"}),
        "another's Service": behind({"app": "web"}),
        "a Service of another namespace": behind({"app": "etl"}, "shop"),
        "a Service without a selector": behind({}),
    },
)
def test_its_file_tells_who_makes_it_and_who_calls_it(document: dict[str, Any], snapshot) -> None:
    assert lint(document=document) == snapshot


@situations(
    "changes",
    {
        "not the pod": {"kind": "Pod", "metadata": POD["metadata"] | {"name": "other"}},
        "an amount": {"spec": {"containers": asking("much")}},
        "conditions": {"status": {"conditions": 4}},
        "owners": {"metadata": POD["metadata"] | {"ownerReferences": 7}},
        "values": {"spec": {"affinity": required({"values": 4})}},
        "an expression": {"spec": {"affinity": required(5)}},
    },
)
def test_what_cannot_be_read_is_refused_by_its_path(changes: dict[str, Any], snapshot) -> None:
    assert refusal(ConfigError, lambda: manifest(copy.deepcopy(POD) | changes)) == snapshot


def test_for_a_terminal_there_is_a_table_of_nodes_and_one_of_evictions(snapshot) -> None:
    told = explain([node(pool="web")], pod(nodeSelector={"pool": "batch"}), [spending(1)])
    assert pod_text(told) == snapshot


PASS = msgspec.convert(CASES["pass"], DeschedulingPass)
OVER = PASS.sources[0]


def in_topic(bodies: Sequence[Any], topic: Topic) -> list[Record]:
    return [record_of(one, topic, key="k", offset=at, at_ms=one.decided_ms) for at, one in enumerate(bodies)]


def descheduled(*passes: DeschedulingPass, name: str = "etl-x2lqp", policy: Policy | None = None) -> PodExplanation:
    """A pod on node-1, by passes of which each came a minute after the one before."""
    found = looks(logged(in_topic(passes, DESCHEDULING), DESCHEDULING, DeschedulingPass), "jobs", name)
    there = node()
    if policy is not None:
        assert there.policy is not None
        there = dataclasses.replace(there, policy=dataclasses.replace(there.policy, body=policy))
    document = pod(nodeName="node-1")
    document["metadata"]["name"] = name
    return explain([there], document, name=f"jobs/{name}", looks=found)


def passed(**changes: Any) -> DeschedulingPass:
    return msgspec.structs.replace(PASS, **changes)


WAITING = msgspec.structs.replace(OVER, bound="waiting", staying=[], terms=OVER.terms | {"row_passes": 2})
WANTED = policy_from(descheduling={"lowThresholds": {"cpu": 45}, "highThresholds": {"cpu": 65}})


@situations(
    "told",
    {
        "it was chosen, and would be evicted": lambda: descheduled(
            PASS, passed(number=7, bound="none_over", sources=[], victims=[])
        ),
        "it was chosen, and is evicted": lambda: descheduled(passed(dry_run=False)),
        "it stays, since others were enough": lambda: descheduled(PASS, name="other"),
        "it stays, since the node was not over its thresholds for long enough": lambda: descheduled(
            passed(sources=[WAITING], bound="none_lasting", victims=[]), name="other"
        ),
        "it stays, since no node is over": lambda: descheduled(
            passed(sources=[], bound="none_over", victims=[]), name="other"
        ),
        "it stays, since its node is not over": lambda: descheduled(passed(sources=[]), name="other"),
        "passes are wanted and do not come": lambda: descheduled(policy=WANTED),
        "passes that nobody wants are not missed": descheduled,
    },
)
def test_what_descheduling_says_of_a_pod(told: Callable[[], PodExplanation], snapshot) -> None:
    assert findings(told().findings, "descheduling") == snapshot


def placed(**said: Any) -> PodPlacement:
    return PodPlacement(pod_uid="uid-etl", namespace="jobs", name="etl-x2lqp", decided_ms=NOW_MS - 2_000, **said)


def last_of(*placements: PodPlacement) -> Logged[PodPlacement] | None:
    return last_placement(logged(in_topic(placements, PLACEMENT), PLACEMENT, PodPlacement), "jobs", "etl-x2lqp")


REFUSED = msgspec.convert(CASES["refused"], list[RefusingNodes])
BEST = msgspec.convert(CASES["best"], list[RankedNode])


@situations(
    "given",
    {
        "no node takes it, and why each refuses it": [
            placed(asked=1, passed=1), placed(asked=3, passed=0, refused=REFUSED),
        ],
        "of several answers, the last": [placed(asked=3, passed=0, refused=REFUSED), placed(asked=0, passed=0)],
        "the best nodes, with their arithmetic": [placed(asked=2, passed=2, best=BEST)],
    },
)  # fmt: skip
def test_what_a_scheduler_was_told_last_is_told(given: list[PodPlacement], snapshot) -> None:
    """Without the pod's file, but for the best nodes."""
    told = explain([node()], pod() if given[-1].best else None, placement=last_of(*given))
    assert pod_text(told) == snapshot


def test_a_pod_of_another_namespace_is_another() -> None:
    assert last_of(msgspec.structs.replace(placed(asked=1, passed=1), namespace="else")) is None


@each_row("refused", "asked", "found")
def test_a_pod_that_its_namespaces_quota_refused_is_found_by_its_controllers_name(
    refused: str, asked: str, *, found: bool, snapshot
) -> None:
    body = RefusedPod(
        namespace="team-a", name=refused, resource="batch_cpu_milli", asked=2_000, used=7_000, bound=8_000,
        refused_ms=NOW_MS - 5_000,
    )  # fmt: skip
    last = last_refused(
        [Logged(body=body, place=Place(topic="slacktide.pod.refused.v1", partition=0, offset=0, logged_ms=NOW_MS))],
        asked,
    )
    log = PodLog(nodes=[], on=None, outcomes=[], span_ms=1, refused=last)
    told = explain_pod(log, "team-a", asked, None, NOW_MS)
    assert (told is not None) == found
    if told is not None:
        assert findings(told.findings, "pod.quota") == snapshot(name="quota")


def test_a_pod_that_borrows_goes_first_and_says_so(snapshot) -> None:
    marked = pod()
    marked["metadata"]["annotations"] = {"quota.slacktide.io/borrowed": "true"}
    told = explain([node()], marked)

    assert findings(told.findings, "pod.borrowed") == snapshot
    assert not findings(explain([node()], pod()).findings, "pod.borrowed")
