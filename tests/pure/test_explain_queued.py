"""Where a Job stands in its queue, as ``slacktide explain job`` states it."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from slacktide.schemas.queue_objects import Metadata
from slacktide.streams.engine.queueing import Term
from testbed.queue_log import FLAVOR, Cluster, Log, local, queue, term, turns, workload
from testbed.queue_place import place_of, text_of
from testbed.snapshots import situations

Story = Callable[[Log, Term, Cluster], Awaitable[None]]


def after(*objects: object, story: Story | None = None) -> Log:
    """The log once these objects were decided on."""

    async def run() -> Log:
        log = Log()
        log.put(FLAVOR, *objects)  # type: ignore[arg-type]
        one, cluster = term(log, "first"), Cluster(log)
        await one.begin(None)
        await turns(one, cluster, 2)
        if story is not None:
            await story(log, one, cluster)
        return log

    return asyncio.run(run())


async def preempted(log: Log, one: Term, cluster: Cluster) -> None:
    log.put(workload(2, "b", "3", priority=7))
    await turns(one, cluster, 3)


QUEUE = (queue("a", "4"), local("a"))


@situations(
    "given",
    {
        "it waits, with position, reason and what it lacks": (
            "w3", lambda: after(*QUEUE, *(workload(number, "a", "2") for number in range(4))),
        ),
        "it has quota, and no position": ("w1", lambda: after(*QUEUE, workload(1, "a"))),
        "above all quotas, it will never be admitted": ("w1", lambda: after(*QUEUE, workload(1, "a", "5"))),
        "without a queue": ("w1", lambda: after(queue("a", "4"), workload(1, "a"))),
        "who preempted it, with the shares of both queues": (
            "w1", lambda: after(*QUEUE, queue("b", "4"), local("b"), workload(1, "a", "6"), story=preempted),
        ),
    },
)  # fmt: skip
def test_where_a_job_stands(given: tuple[str, Callable[[], Log]], snapshot) -> None:
    name, log = given
    assert text_of(log(), name) == snapshot


def test_a_wait_is_an_interval_while_quota_is_at_hand() -> None:
    """A workload that is sure to be tried next, in a queue that has admitted others in the last hour."""

    async def story(log: Log, one: Term, cluster: Cluster) -> None:
        log.put(workload(9, "a"))

    log = after(queue("a", "4"), local("a"), workload(1, "a"), workload(2, "a"), story=story)
    wait = place_of(log, "w9").wait
    assert wait is not None
    assert wait.state == "interval"
    assert 0 <= wait.least_s < wait.most_s


def test_what_the_decider_laid_aside_does_not_hide_others() -> None:
    """An object that cannot be used has gone to the dead letters; the others wait and are explained."""
    odd = workload(2, "a")
    odd = msgspec.structs.replace(odd, metadata=msgspec.structs.replace(odd.metadata, creation_timestamp="at noon"))
    log = after(queue("a", "4"), local("a"), workload(1, "a"), odd, queue("b", "4 CPUs"), workload(3, "a", "9"))
    assert place_of(log, "w1").state.phase == "reserved"
    assert (place_of(log, "w3").position, place_of(log, "w3").pending_count) == (1, 1)


def test_the_workload_of_a_job_is_found_by_name_by_kueues_name_for_it_and_by_uid() -> None:
    def named(name: str, uid: str) -> object:
        plain = workload(1, "a")
        return msgspec.structs.replace(plain, metadata=Metadata(name=name, namespace="jobs", uid=uid))

    log = after(queue("a", "4"), local("a"), named("job-etl-0a1b2", "u1"), named("plain", "u2"), named("x", "u3"))
    assert place_of(log, "etl").workload == "jobs/job-etl-0a1b2"
    assert place_of(log, "plain").workload == "jobs/plain"
