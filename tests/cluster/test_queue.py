"""The job queue in Kubernetes: Jobs wait suspended, start on their flavor's nodes, stop for others; none is lost."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.queue.queue import JobQueue
from slacktide.agents.kubernetes import api_server as kubernetes
from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.queue import QueueDecision, QueueOutcome
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from testbed.cluster.api_server import ApiServer, Json, RefusedError
from testbed.cluster.bridge_rig import OPERATORS, BridgeRig
from testbed.cluster.identity import access_of
from testbed.cluster.jobs import Batch
from testbed.cluster.kueue import webhook
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.queue_rig import GROUP, POOL, Kubelets, Queue, answers, finish, runs
from testbed.deciders import decider
from testbed.history.queue import complaints
from testbed.parts import Part
from testbed.queue_log import NAMES
from testbed.waiting import soon

pytestmark = pytest.mark.cluster

ADMISSION = "slacktide.io/queue-admission"


@pytest.fixture
async def deciding(rig: BridgeRig, tmp_path: Path) -> AsyncIterator[Part]:
    with decider(rig.bootstrap, tmp_path) as part:
        yield part


async def test_jobs_wait_for_quota_and_run_on_their_flavors_nodes(queueing, rig, deciding):
    queue = Queue(queueing, "1")
    rig.replica(queue=True)
    first = queue.job("first")
    await runs(queue, "first")
    [pod] = await soon(lambda: asyncio.to_thread(first.pods), "its controller makes its pod")
    await asyncio.to_thread(first.say, pod, "Running")
    second = queue.job("second", suspend=False)
    # It runs before the queue has seen it, and of two Jobs of one second the uid decides which is first.
    await soon(lambda: answers(rig, second), "the queue started it", enough=lambda found: found == ["started"])
    third = queue.job("third")
    await soon(lambda: rig.records(QUEUE_STATE.name, third.uid), "the third was tried")
    assert queue.running() == {"first", "second"}
    assert first.spec["template"]["spec"]["nodeSelector"] == {POOL: queue.name}
    assert first.spec["template"]["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] == queue.name
    await soon(lambda: answers(rig, first), "its pod is ready", enough=lambda found: found == ["started", "ready"])
    await finish(first)
    await runs(queue, "second", "third")
    await asyncio.to_thread(second.delete)
    await runs(queue, "third")
    assert deciding.metric("slacktide_queue_dead_letters_total") == 0


async def test_queues_show_who_waits_and_what_is_used(queueing, rig, deciding):
    queue = Queue(queueing, "750m")
    rig.replica(queue=True)
    for name in ("one", "two", "three"):
        queue.job(name)

    async def shown(path: str) -> Json:
        return await soon(
            lambda: asyncio.to_thread(lambda: queueing.get(f"{GROUP}/{path}").get("status", {})),
            "one has quota and two wait",
            enough=lambda one: (one.get("pendingWorkloads"), one.get("admittedWorkloads")) == (2, 1),
        )

    status = await shown(f"clusterqueues/{queue.name}")
    assert status["flavorsUsage"] == [
        {"name": queue.flavor, "resources": [{"name": "cpu", "total": "500m", "borrowed": "0"}]}
    ]
    local = await shown(f"namespaces/{queue.namespace}/localqueues/main")
    assert local["flavorsReservation"] == [{"name": queue.flavor, "resources": [{"name": "cpu", "total": "500m"}]}]
    assert [one["reason"] for one in (*status["conditions"], *local["conditions"])] == ["Ready", "Ready"]
    assert queueing.kubectl("get", "clusterqueue", queue.name, "--no-headers").split() == [queue.name, "2", "1"]


async def test_a_victim_stops_waits_as_it_was_and_runs_again(queueing, rig, deciding):
    queue = Queue(queueing, "500m", preemption={"withinClusterQueue": "LowerPriority"})
    queue.create("WorkloadPriorityClass", "urgent", None, value=100)
    rig.replica(queue=True)
    victim = queue.job("victim")
    asked = victim.spec["template"]["spec"]
    await runs(queue, "victim")
    urgent = queue.job("urgent", priority="urgent")
    with Kubelets(queue) as kubelets:
        await runs(queue, "urgent")
        await soon(
            lambda: asyncio.to_thread(lambda: victim.spec["template"]["spec"]),
            "the victim's template is as it was",
            enough=lambda spec: spec == asked,
        )
        await finish(urgent)
        await runs(queue, "victim")
    assert kubelets.most == 1, "the victim's pod was gone before the other's came"


LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/slacktide-bridge"


def a_bridge(rig: BridgeRig, number: int, processes: contextlib.ExitStack) -> Callable[[], Awaitable[None]]:
    """Start one; what kills it. Of three, one is a process and ends by SIGKILL."""
    if number % 3 != 1:
        return rig.replica(f"bridge-{number}", queue=True).kill
    processes.enter_context(rig.command("--queue", "--metrics-port=0"))

    async def kill() -> None:
        await asyncio.to_thread(processes.close)
        with contextlib.suppress(RefusedError):  # else it holds for 15 s
            await asyncio.to_thread(rig.cluster.delete, LEASE)

    return kill


@pytest.mark.nightly
async def test_whatever_is_killed_no_job_runs_without_quota_and_none_is_lost(queueing, rig, tmp_path):
    queue = Queue(queueing, "2")
    jobs = [queue.job(f"job-{number:02}") for number in range(16)]
    chance = random.Random(7)
    with Kubelets(queue, ends_s=1.0) as kubelets, contextlib.ExitStack() as processes:
        for number in range(5):
            kill = a_bridge(rig, number, processes)
            with decider(rig.bootstrap, tmp_path, f"decider-{number}"):
                if number == 4:
                    await soon(lambda: _all_finished(jobs), "all Jobs finish")
                    continue
                begun = len(kubelets.seen)
                await soon(lambda begun=begun: _more(kubelets, begun), "a Job starts", enough=bool)
                await asyncio.sleep(chance.uniform(0, 1))
                if number % 2:
                    await kill()
                    await asyncio.sleep(chance.uniform(0, 1))
            await kill()
    assert kubelets.most == 4, "half a CPU each, of two"
    assert len(kubelets.seen) == len(jobs), "each ran once"
    topics = {name: await rig.records(name) for name in NAMES}
    decisions = [decode(one.value, QueueDecision) for one in topics[QUEUE_DECISION.name]]
    assert list(complaints(topics, decisions)) == []


async def _more(kubelets: Kubelets, than: int) -> bool:
    return len(kubelets.seen) > than


async def _all_finished(jobs: list[Batch]) -> bool:
    return await asyncio.to_thread(lambda: all(job.finished for job in jobs))


async def test_where_kueue_admits_nothing_is_started(queueing, rig, deciding):
    queue = Queue(queueing, "1")
    with webhook(queueing):
        replica = rig.replica(queue=True)
        job = queue.job("job", suspend=False)
        await soon(lambda: rig.records(QUEUE_STATE.name, job.uid), "it is decided on")
        await soon(
            lambda: _not_fresh(replica),
            "the bridge reports it",
            enough=lambda why: "Kueue admits workloads here" in why,
        )
        assert "shadow: Kueue admits there" in await status(rig)
        assert queue.running() == {"job"}
        assert ADMISSION not in queueing.get(f"/apis/batch/v1/namespaces/{queue.namespace}/jobs/job")["metadata"].get(
            "annotations", {}
        )


async def status(rig: BridgeRig) -> str:
    """As an operator sees it."""
    arguments = ["queue", "status", "--bootstrap", rig.bootstrap, "--kubeconfig", str(rig.cluster.kubeconfig)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert done.exit_code == 0, done.output
    return done.output


async def _not_fresh(replica) -> str:
    return str(replica.health.not_fresh)


async def test_what_went_while_no_bridge_ran_goes_from_kafka_too(queueing, rig):
    queue = Queue(queueing, "1")
    rig.replica(queue=True)
    job = queue.job("job")
    await soon(lambda: rig.records(QUEUE_WORKLOAD.name, job.uid), "the Job is published")
    spec = f"LocalQueue/{queue.namespace}/main"
    await soon(lambda: rig.records(QUEUE_SPEC.name, spec), "the LocalQueue is published")
    await rig.end()
    await asyncio.to_thread(job.delete)
    queueing.delete(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{queue.namespace}/localqueues/main")
    rig.replica("two", queue=True)
    for topic, key in ((QUEUE_WORKLOAD.name, job.uid), (QUEUE_SPEC.name, spec)):
        await soon(
            lambda topic=topic, key=key: rig.records(topic, key),
            f"{key} is deleted",
            enough=lambda records: records[-1].value is None,
        )


class Dying(kubernetes.ApiServer):
    """One write only: it dies with its answer unread, or, where it is read, at the next write."""

    def __init__(self, server: ApiServer, *, answered: bool) -> None:
        super().__init__(access_of(server.kubeconfig), name="test")
        self.dead = asyncio.Event()
        self._is_answered, self._wrote = answered, False

    async def patch(self, *args, **kwargs):
        if not self._wrote:
            self._wrote = True
            try:
                done = await super().patch(*args, **kwargs)
            except kubernetes.ApiError:
                self._wrote = False
                raise
            if self._is_answered:
                return done
        self.dead.set()
        return await asyncio.Event().wait()


async def lives(rig: BridgeRig, until: Callable[[], Awaitable[bool]]) -> int:
    """How many bridges died at their writes, one after the other, until it was so."""
    for number in itertools.count():
        async with Dying(rig.cluster, answered=bool(number % 2)) as api:
            part = JobQueue(Cluster(rig.bootstrap), SystemClock(), f"life-{number}", OPERATORS)
            running = asyncio.create_task(part.run(api))
            try:
                async with asyncio.timeout(60):
                    while not api.dead.is_set():
                        if running.done():
                            running.result()
                        if await until():
                            return number
                        await asyncio.sleep(0.1)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    raise AssertionError("unreachable")


async def test_a_bridge_that_dies_at_every_write_starts_no_job_twice_and_loses_none(queueing, rig, deciding):
    queue = Queue(queueing, "1", preemption={"withinClusterQueue": "LowerPriority"})
    queue.create("WorkloadPriorityClass", "most-urgent", None, value=100)
    jobs = [queue.job(f"job-{number}") for number in range(3)]

    async def two_run() -> bool:
        return len(await asyncio.to_thread(queue.running)) == 2

    async def urgent_runs() -> bool:
        return "urgent" in await asyncio.to_thread(queue.running)

    with Kubelets(queue) as kubelets:
        died = await lives(rig, two_run)
        jobs.append(queue.job("urgent", priority="most-urgent"))
        died += await lives(rig, urgent_runs)
    assert kubelets.most == 2, "half a CPU each, of one"
    with Kubelets(queue, ends_s=0.3) as kubelets:
        died += await lives(rig, lambda: _all_finished(jobs))
    assert died >= 5, "of all Jobs, and of the victim's stop"
    assert kubelets.most <= 2
    assert len(kubelets.seen) == len(jobs), "the victim ran again, all others once"
    topics = {name: await rig.records(name) for name in NAMES}
    decisions = [decode(one.value, QueueDecision) for one in topics[QUEUE_DECISION.name]]
    assert list(complaints(topics, decisions)) == []
    answered = [decode(one.value, QueueOutcome) for one in topics[QUEUE_OUTCOME.name]]
    mine = {job.uid for job in jobs}
    started = {(one.uid, one.turn) for one in answered if one.result == "started" and one.uid in mine}
    assert len(jobs) <= len(started) <= len(jobs) + 1, "the victim's first start may have stopped unanswered"
