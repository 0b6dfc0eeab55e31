"""Where a Job stands in its queue, as ``slacktide explain job`` states it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from slacktide.schemas.queue_objects import Metadata
from slacktide.streams.engine.queue_term import Term
from testbed.queue_log import FLAVOR, Cluster, Log, local, queue, term, turns, workload
from testbed.queue_place import place_of, text_of

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


def test_a_job_that_waits_has_a_position_a_reason_and_what_it_lacks() -> None:
    log = after(queue("a", "4"), local("a"), *(workload(number, "a", "2") for number in range(4)))
    third = place_of(log, "w3")
    assert (third.cluster_queue, third.position, third.pending_count, third.reason) == (
        "a",
        2,
        2,
        "PreemptionNoCandidates",
    )
    assert text_of(log, "w3").splitlines() == [
        "queue a: position 2 of 2, PreemptionNoCandidates",
        "  The quota that it needs is in use. No workload may be preempted for it.",
        "  wait: unknown: it waits for quota: PreemptionNoCandidates",
        "  would be admitted with 2 more cpu of default",
    ]


def test_a_job_that_has_quota_has_no_position() -> None:
    log = after(queue("a", "4"), local("a"), workload(1, "a"))
    assert text_of(log, "w1").splitlines() == ["queue a: reserved, started", "  has quota since 1.0 s ago"]


def test_a_job_above_all_quotas_will_never_be_admitted() -> None:
    log = after(queue("a", "4"), local("a"), workload(1, "a", "5"))
    text = text_of(log, "w1")
    assert "position 1 of 1, ExceedsMaxQuota" in text
    assert "wait: never: " in text
    assert "would be admitted with a larger quota, or a smaller Job" in text


def test_a_job_without_a_queue_is_told_what_is_missing() -> None:
    log = after(queue("a", "4"), workload(1, "a"))
    assert text_of(log, "w1").splitlines() == [
        "queue -: pending",
        "  would be admitted with a LocalQueue of this name in its namespace, and its ClusterQueue",
    ]


def test_who_preempted_a_job_is_stated_with_the_shares_of_both_queues() -> None:
    async def story(log: Log, one: Term, cluster: Cluster) -> None:
        log.put(workload(2, "b", "3", priority=7))
        await turns(one, cluster, 3)

    log = after(queue("a", "4"), queue("b", "4"), local("a"), local("b"), workload(1, "a", "6"), story=story)
    preempted = place_of(log, "w1").preempted
    assert preempted is not None
    assert (preempted.by, preempted.eviction.preemptor.priority) == ("jobs/w2", 7)
    assert "by jobs/w2 of b, priority 7: InCohortReclamation; share of b 0 to 0, of a 250 to 0" in text_of(log, "w1")


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
