"""Jobs' statuses by the fold, against those of the real Job controller, with everything killed between."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.agents.cluster.bridge.election import TIMING
from slacktide.agents.cluster.pending.deadlines import REASON
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.kubernetes_pod import PENDING_DEADLINE
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.topics import AUDIT, JOB_STATUS
from slacktide.streams.records import Out
from testbed.cluster.api_server import ApiServer, RefusedError
from testbed.cluster.bridge_rig import BridgeRig
from testbed.cluster.jobs import Batch, job_controller
from testbed.cluster.manifests import MANIFESTS, SYSTEM
from testbed.job_events import by_rule
from testbed.parts import Part
from testbed.waiting import soon

pytestmark = pytest.mark.cluster

INDEXES = 1_000
OBSERVED = "40% of the requested CPU was available, threshold 60%"


@pytest.fixture(scope="module")
def controlled(cluster: ApiServer) -> Iterator[ApiServer]:
    with job_controller(cluster):
        yield cluster


@pytest.fixture
def worker(rig: BridgeRig, tmp_path: Path) -> Iterator[Part]:
    part = Part("stream", tmp_path, ["stream", "--bootstrap", rig.bootstrap, "--session-timeout", "2"])
    part.start()
    yield part
    part.stop()


async def status_of(rig: BridgeRig, job: Batch) -> JobStatus | None:
    records = await rig.records(JOB_STATUS.name, job.uid)
    return decode(records[-1].value, JobStatus) if records and records[-1].value else None


async def watched(rig: BridgeRig, job: Batch) -> None:
    """A bridge follows it from here on."""
    await soon(lambda: status_of(rig, job), f"{job.key} is watched", enough=lambda one: one and one.active)


def by_controller(status: dict) -> dict:
    """Those fields that the fold has, too."""
    fields = ("active", "ready", "terminating", "succeeded", "failed", "completedIndexes", "failedIndexes")
    conditions = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    return {field: status.get(field) or 0 for field in fields} | {"conditions": conditions}


def by_fold(status: JobStatus) -> dict:
    conditions = {one.type: (one.status, one.reason, one.message) for one in status.conditions}
    return {
        "active": status.active,
        "ready": status.ready,
        "terminating": status.terminating,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "completedIndexes": status.completed_indexes or 0,
        "failedIndexes": status.failed_indexes or 0,
        "conditions": conditions,
    }


async def settled(rig: BridgeRig, job: Batch, *, seen: bool = False) -> JobStatus:
    """Its status once the fold's is the controller's, and has no pod from the controller alone if all are ``seen``."""

    async def both() -> tuple[JobStatus | None, dict]:
        return await status_of(rig, job), await asyncio.to_thread(lambda: job.status)

    found, _ = await soon(
        both,
        f"{job.key} is finished, and the fold has it so",
        60,
        enough=lambda both: (
            both[0]
            and _finished(both[1])
            and by_fold(both[0]) == by_controller(both[1])
            and not (seen and (both[0].unseen_succeeded or both[0].unseen_failed))
        ),
    )
    assert found is not None
    return found


def _finished(status: dict) -> bool:
    return any(one["type"] in {"Complete", "Failed"} for one in status.get("conditions", ()))


def ends(index: int, failures: int) -> dict:
    """What becomes of each index of the large Job."""
    if index % 50 == 7:
        return {"phase": "Failed", "code": 42}
    if index % 100 == 3 and not failures:
        return {"phase": "Failed", "code": 3}
    return {"phase": "Succeeded", "code": 0}


@pytest.mark.nightly
async def test_a_thousand_indexes_come_to_what_the_job_controller_counts(controlled, rig, worker):
    rig.replica(timing=TIMING)
    rules = [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    job = Batch(
        controlled,
        completions=INDEXES,
        parallelism=INDEXES,
        completionMode="Indexed",
        backoffLimitPerIndex=1,
        podFailurePolicy={"rules": rules},
    )
    await watched(rig, job)
    for share in (0.3, 0.7):
        await asyncio.to_thread(job.run, ends, lambda ended, share=share: ended >= share * INDEXES)
        worker.kill()
        worker.start()
    await asyncio.to_thread(job.run, ends, lambda _: False)
    status = await settled(rig, job, seen=True)
    assert (status.succeeded, len(status.failed_indexes.split(","))) == (980, 20)
    assert by_rule(status) == {"rule 0: FailIndex": 20, "exit code 3": 10}
    assert (status.unseen_succeeded, status.unseen_failed) == (0, 0), "all by the pods' events alone"
    assert status.decided is not None
    assert status.decided.reason == "FailedIndexes"


DONE, BAD = {"phase": "Succeeded", "code": 0}, {"phase": "Failed", "code": 1}
FAIL_JOB = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0, 3]}}]}
COUNT = {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]}
SOME = {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]}
INDEXED = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
ENDINGS = {
    "PodFailurePolicy": ({**INDEXED, "podFailurePolicy": FAIL_JOB}, lambda index, _: BAD if index == 1 else None),
    "BackoffLimitExceeded": ({"backoffLimit": 0, "podFailurePolicy": COUNT}, lambda *_: BAD),
    "MaxFailedIndexesExceeded": (
        {**INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1},
        lambda index, _: BAD if index < 2 else None,
    ),
    "SuccessPolicy": ({**INDEXED, "successPolicy": SOME}, lambda index, _: DONE if index == 2 else None),
    "CompletionsReached": ({"parallelism": 2}, lambda *_: DONE),
}


async def test_each_way_to_end_is_the_job_controllers(controlled, rig, worker):
    rig.replica(timing=TIMING)
    jobs = {reason: (Batch(controlled, **spec), outcome) for reason, (spec, outcome) in ENDINGS.items()}
    for job, _ in jobs.values():
        await watched(rig, job)
    never = lambda _: False  # noqa: E731
    await asyncio.gather(*(asyncio.to_thread(job.run, outcome, never, 60) for job, outcome in jobs.values()))
    for reason, (job, _) in jobs.items():
        status = await settled(rig, job)
        assert status.decided is not None
        assert status.decided.reason == reason
        assert (status.unseen_succeeded, status.unseen_failed) == (0, 0)


async def test_an_elastic_job_that_shrinks_completes_with_fewer_indexes(controlled, rig, worker):
    rig.replica(timing=TIMING)
    job = Batch(controlled, **INDEXED)
    await watched(rig, job)
    await asyncio.to_thread(job.run, lambda index, _: DONE if index in {0, 3} else None, lambda ended: ended == 4)
    await soon(lambda: status_of(rig, job), "two are done", enough=lambda one: one and one.completed_indexes == "0,3")
    job.change(completions=2, parallelism=2)
    await soon(lambda: status_of(rig, job), "one is done", enough=lambda one: one and one.completed_indexes == "0")
    await asyncio.to_thread(job.run, lambda *_: DONE, lambda _: False)
    assert (await settled(rig, job)).completed_indexes == "0,1"


async def test_deleted_suspended_evicted_over_a_new_bridge_and_gone(controlled, rig, worker):
    first = rig.replica()
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    job = Batch(controlled, completions=4, parallelism=3, podFailurePolicy=policy, backoffLimit=2)
    pods = await soon(lambda: asyncio.to_thread(job.pods), "three pods", enough=lambda found: len(found) == 3)
    for pod in pods:
        job.say(pod, "Running")
    first_status = await soon(lambda: status_of(rig, job), "all run", enough=lambda one: one and one.ready == 3)
    assert first_status is not None
    evicted, done, _ = pods
    await rig.put(eviction_of(evicted, job.namespace))
    job.say(evicted, "Failed", code=137, condition="DisruptionTarget")
    job.say(done, "Succeeded", code=0)
    await soon(lambda: status_of(rig, job), "both are known", enough=_both_known)
    await first.stop()
    controlled.delete(f"/api/v1/namespaces/{job.namespace}/pods/{done['metadata']['name']}")
    job.change(suspend=True)
    await soon(lambda: asyncio.to_thread(job.pods), "no pods", enough=lambda found: not found)
    worker.kill()
    worker.start()
    rig.replica("two")
    suspended = await soon(lambda: status_of(rig, job), "it is suspended", enough=lambda one: one and not one.active)
    assert suspended is not None
    assert (suspended.succeeded, suspended.failed) == (1, 0), "neither a deleted pod nor a suspended one counts"
    job.change(suspend=False)
    await asyncio.to_thread(job.run, lambda *_: {"phase": "Succeeded", "code": 0}, lambda _: False)
    status = await settled(rig, job)
    assert (status.evictions, status.evicted[0].eviction.threshold) == (1, OBSERVED)
    assert (by_rule(status), status.unseen_succeeded) == ({"rule 0: Ignore": 1}, 0)
    job.delete()
    records = await soon(
        lambda: rig.records(JOB_STATUS.name, job.uid), "a tombstone", enough=lambda found: found[-1].value is None
    )
    assert records


@pytest.mark.nightly
@pytest.mark.parametrize(("policy", "at_once"), [("Failed", 1), ("TerminatingOrFailed", 2)])
async def test_a_pod_that_is_being_deleted_holds_its_index_if_the_job_says_so(controlled, rig, worker, policy, at_once):
    rig.replica(timing=TIMING)
    on_a_node = {"nodeName": "node-1"}  # else it would be gone at once
    job = Batch(
        controlled, **{**INDEXED, "completions": 1, "parallelism": 1}, podReplacementPolicy=policy, pod=on_a_node
    )
    await watched(rig, job)
    [first] = await asyncio.to_thread(job.pods)
    job.say(first, "Running")
    path = f"/api/v1/namespaces/{job.namespace}/pods/{first['metadata']['name']}"
    controlled.request("DELETE", path, {"gracePeriodSeconds": 600})
    await soon(
        lambda: asyncio.to_thread(lambda: job.status),
        "the controller saw it",
        enough=lambda one: one.get("terminating") and one.get("active", 0) == at_once - 1,
    )
    assert len(job.pods()) == at_once
    fold = await soon(lambda: status_of(rig, job), "so does the fold", enough=lambda one: one and one.terminating)
    assert fold is not None
    job.say(first, "Failed", code=1)
    await soon(
        lambda: asyncio.to_thread(job.pods),
        "another runs",
        enough=lambda found: found and all(one["metadata"]["uid"] != first["metadata"]["uid"] for one in found),
    )
    await asyncio.to_thread(job.run, lambda *_: DONE, lambda _: False)
    assert (await settled(rig, job)).completed_indexes == "0"


@pytest.fixture(scope="module")
def with_deadlines(controlled: ApiServer) -> ApiServer:
    """With the component's rights, and its policy in force."""
    for name in ("rbac", "pod-policy"):
        controlled.kubectl("apply", "-f", str(MANIFESTS / f"components/pending-deadlines/{name}.yaml"))
    other = Batch(controlled)
    controlled.wait(lambda: "may fail only pods" in fail(controlled, other), "the policy is in force", 60)
    return controlled


def fail(server: ApiServer, job: Batch) -> str:
    """How the API server refuses the bridge that tries to fail a pod of the Job."""
    for pod in job.pods():
        path = f"/api/v1/namespaces/{job.namespace}/pods/{pod['metadata']['name']}/status?dryRun=All"
        failed = {"status": {"phase": "Failed", "reason": "PendingDeadlineExceeded"}}
        try:
            server.request("PATCH", path, failed, token=server.account(SYSTEM, "slacktide-bridge").token)
        except RefusedError as refused:
            return str(refused)
    return ""


async def test_a_pod_that_cannot_start_fails_with_the_reason_where_its_job_asks_for_it(with_deadlines, rig, worker):
    rig.replica(timing=TIMING, pending_deadlines=True)
    rule = {"action": "FailJob", "onPodConditions": [{"type": REASON, "status": "True"}]}
    job = Batch(with_deadlines, podFailurePolicy={"rules": [rule]}, annotations={PENDING_DEADLINE: "2"})
    waits = Batch(with_deadlines, annotations={PENDING_DEADLINE: "soon"})
    status = await settled(rig, job)
    assert by_rule(status) == {"rule 0: FailJob": 1}
    assert [one.reason for one in status.conditions if one.type == "Failed"] == ["PodFailurePolicy"]
    events = with_deadlines.get(f"/api/v1/namespaces/{job.namespace}/events")["items"]
    assert [one["message"] for one in events if one["reason"] == REASON] == ["pending for 2 s, which is its deadline"]
    assert len(waits.pods()) == 1


def test_the_bridge_fails_no_pod_that_has_no_deadline(with_deadlines):
    job = Batch(with_deadlines)
    with_deadlines.wait(job.pods, "it has a pod")
    assert "may fail only pods of Jobs with the annotation" in fail(with_deadlines, job)


def _both_known(status: JobStatus | None) -> bool:
    return status is not None and status.evictions == status.succeeded == 1


def eviction_of(pod: dict, namespace: str) -> Out:
    """What an agent's audit keeps of an eviction."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    outcome = NodeOutcome(
        node="node-1", boot_id="1-a", seq=1, command_id="c", rule="BECPUEvict", target=f"pod/{uid}", origin="stream",
        result="applied", policy_version="p", observed_ms=1, acted_ms=2, age_ms=1, bound="satisfaction",
        terms={"average_satisfied_ratio": 0.4, "lower_pct": 60}, pod=PodName(namespace=namespace, name=name),
        spent=Spent(evictions=1),
    )  # fmt: skip
    return Out(topic=AUDIT.name, key=b"node-1", value=encode(outcome))
