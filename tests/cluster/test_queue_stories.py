"""What quotas do to Jobs on a real API server with the real Job controller: each of the queue's features once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.queue import QueueState
from slacktide.schemas.topics import QUEUE_STATE
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import BridgeRig
from testbed.cluster.jobs import Batch
from testbed.cluster.queue_rig import POOL, Kubelets, Queue, answers, finish, runs
from testbed.deciders import decider
from testbed.waiting import soon

pytestmark = pytest.mark.cluster

RECLAIM = {"reclaimWithinCohort": "Any"}


@pytest.fixture
async def deciding(rig: BridgeRig, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    with decider(rig.bootstrap, tmp_path, "one", *getattr(request, "param", ())):
        rig.replica(queue=True)
        yield


async def running(queue: Queue, count: int) -> set[str]:
    return await soon(
        lambda: asyncio.to_thread(queue.running), f"{count} Jobs run", enough=lambda found: len(found) == count
    )


def pool_of(job: Batch) -> str:
    return str(job.spec["template"]["spec"]["nodeSelector"][POOL])


async def state_of(rig: BridgeRig, job: Batch) -> QueueState | None:
    records = await rig.records(QUEUE_STATE.name, job.uid)
    return decode(records[-1].value, QueueState) if records and records[-1].value else None


async def events_of(server: ApiServer, job: Batch, reason: str) -> list[str]:
    found = await asyncio.to_thread(server.get, f"/api/v1/namespaces/{job.namespace}/events")
    mine = [one for one in found["items"] if one["involvedObject"]["name"] == job.name and one["reason"] == reason]
    return [one["message"] for one in mine]


def uids(job: Batch) -> set[str]:
    return {one["metadata"]["uid"] for one in job.pods()}


async def test_a_queue_borrows_what_its_cohort_leaves_idle_and_the_owner_gets_it_back(queueing, rig, deciding):
    borrower = Queue(queueing, "1", cohortName="both")
    owner = Queue(queueing, "1", cohortName="both", flavors=[borrower.flavor], preemption=RECLAIM)
    jobs = {name: borrower.job(name) for name in ("one", "two", "three", "four")}
    await runs(borrower, *jobs)
    own = owner.job("own")
    with Kubelets(borrower) as kubelets:
        await runs(owner, "own")
        [evicted] = jobs.keys() - await running(borrower, 3)
        told = await soon(lambda: events_of(queueing, jobs[evicted], "Evicted"), "its user is told", enough=bool)
        assert "InCohortReclamation" in told[0]
        await finish(own)
        await runs(borrower, *jobs)
    assert kubelets.most <= 4


async def test_a_job_goes_to_the_next_flavor_when_the_first_is_full(queueing, rig, deciding):
    spot, base = "spot", "base"
    queue = Queue(queueing, "500m", flavors=[spot, base])
    for flavor in (spot, base):
        queue.make_flavor(flavor, flavor)
    first = queue.job("first")
    await runs(queue, "first")
    second = queue.job("second")
    await runs(queue, "first", "second")
    third = queue.job("third")
    waits = await soon(lambda: state_of(rig, third), "the third was tried")
    assert waits is not None
    assert [pool_of(first), pool_of(second), waits.phase] == [spot, base, "pending"]
    await finish(first)
    await runs(queue, "second", "third")
    assert pool_of(third) == spot


@pytest.mark.parametrize("deciding", [["--fair-sharing"]], indirect=True)
async def test_by_fair_sharing_two_queues_get_equal_parts_of_what_a_third_lends(queueing, rig, deciding):
    lender = Queue(queueing, "2", cohortName="fair")
    shared = {"cohortName": "fair", "flavors": [lender.flavor], "preemption": RECLAIM}
    early, late = (Queue(queueing, "0", **shared) for _ in range(2))
    for number in range(4):
        early.job(f"job-{number}")
    await running(early, 4)
    with Kubelets(early):
        for number in range(4):
            late.job(f"job-{number}")
        await running(late, 2)
        await running(early, 2)


@pytest.mark.parametrize("deciding", [["--pods-ready-timeout=2s", "--requeue-backoff-base=1s"]], indirect=True)
async def test_a_job_whose_pods_do_not_become_ready_is_stopped_waits_and_is_tried_again(queueing, rig, deciding):
    queue = Queue(queueing, "500m")
    job = queue.job("job")
    await soon(
        lambda: answers(rig, job), "it is started again", enough=lambda found: found[:2] == ["started", "stopped"]
    )
    told = await soon(lambda: events_of(queueing, job, "Evicted"), "its user is told", enough=bool)
    assert "PodsReadyTimeout" in told[0]

    async def ready() -> list[str]:
        for pod in await asyncio.to_thread(job.pods):
            await asyncio.to_thread(job.say, pod, "Running")
        return await answers(rig, job)

    await soon(ready, "its pod is ready", enough=lambda found: found[-2:] == ["started", "ready"])
    await finish(job)


async def test_a_queue_that_is_drained_stops_its_jobs_and_goes_on_later(queueing, rig, deciding):
    queue = Queue(queueing, "1")
    for name in ("one", "two"):
        queue.job(name)
    await runs(queue, "one", "two")
    with Kubelets(queue):
        queue.change(stopPolicy="Hold")
        third = queue.job("third")
        held = await soon(lambda: state_of(rig, third), "the third is held")
        assert held is not None
        assert (queue.running(), held.reason) == ({"one", "two"}, "ClusterQueueStopped")
        queue.change(stopPolicy="HoldAndDrain")
        await runs(queue)
        queue.change(stopPolicy="None")
        await running(queue, 2)


async def test_a_job_that_grows_above_its_admission_waits_with_its_new_number_of_pods(queueing, rig, deciding):
    queue = Queue(queueing, "1")
    job = queue.job("job", parallelism=2, completions=8)
    await runs(queue, "job")
    with Kubelets(queue):
        job.change(parallelism=4)
        await runs(queue)
        await soon(
            lambda: state_of(rig, job),
            "it waits for quota",
            enough=lambda one: one and (one.phase, one.booking) == ("pending", None),
        )
        queue.quota("2")
        await runs(queue, "job")
        assert job.spec["parallelism"] == 4
        await soon(lambda: asyncio.to_thread(job.pods), "four pods", enough=lambda found: len(found) == 4)


async def test_a_job_that_is_suspended_by_hand_is_started_again_and_an_annotation_holds_it(queueing, rig, deciding):
    queue = Queue(queueing, "500m")
    job = queue.job("job")
    await runs(queue, "job")
    before = await soon(lambda: asyncio.to_thread(uids, job), "its pod", enough=bool)
    job.change(suspend=True)
    await soon(
        lambda: asyncio.to_thread(uids, job), "another pod", enough=lambda found: found and found.isdisjoint(before)
    )
    path = f"/apis/batch/v1/namespaces/{queue.namespace}/jobs/job"
    queueing.patch(path, {"metadata": {"annotations": {"slacktide.io/queue-active": "false"}}})
    await runs(queue)
    queueing.patch(path, {"metadata": {"annotations": {"slacktide.io/queue-active": "true"}}})
    await runs(queue, "job")
