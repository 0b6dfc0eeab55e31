"""Workloads whose pods are not ready in time, through the decider: evicted, held back, deactivated, and replayed."""

import msgspec

from slacktide.schemas.queue import PodsReadySettings, QueueState, Result
from slacktide.schemas.queue_objects import WorkloadObject
from slacktide.streams.engine.queueing import Term
from slacktide.streams.queue.ledger import ledger_of
from slacktide.streams.queue.projection import with_status
from testbed.queue_log import FLAVOR, Cluster, Log, lawful, local, queue, standing, term, turns, workload

SETTINGS = PodsReadySettings(timeout_s=10, backoff_base_s=5, backoff_max_s=8, backoff_limit=2)


def states(log: Log) -> dict[str, QueueState]:
    return ledger_of([], [one for records in log.topics.values() for one in records]).states


async def begun(settings: PodsReadySettings, *given: WorkloadObject, cpu: str = "4") -> tuple[Log, Term, Cluster]:
    log = Log()
    log.put(FLAVOR, queue("a", cpu), local("a"), *given)
    one, cluster = term(log, "first", pods_ready=settings), Cluster(log)
    await one.begin(None)
    await turns(one, cluster, 2)
    return log, one, cluster


def answer(cluster: Cluster, uid: str, result: Result) -> None:
    cluster._answer(uid, cluster.running[uid], result)


def evictions(log: Log, uid: str = "uid-00001") -> list[tuple[str, int, int]]:
    """By which reason, in which second after the beginning, and for how many seconds it is then held back."""
    first_ms = log.decisions()[0].decided_ms
    found = [
        (each.reason, (one.decided_ms - first_ms) // 1_000, max(0, each.retry_ms - one.decided_ms) // 1_000)
        for one in log.decisions()
        for each in one.changes
        if each.uid == uid and each.phase == "evicting"
    ]
    return [
        one for at, one in enumerate(found) if at == 0 or one[:1] != found[at - 1][:1] or one[1] != found[at - 1][1]
    ]


async def test_pods_that_are_not_ready_in_time_cost_a_workload_its_quota_for_a_while_that_doubles() -> None:
    log, one, cluster = await begun(SETTINGS, workload(1, "a"))
    await turns(one, cluster, 60)
    assert "uid-00001" not in cluster.running
    lawful(log)
    reasons = [(reason, backoff) for reason, _, backoff in evictions(log)]
    assert reasons == [("PodsReadyTimeout", 5), ("PodsReadyTimeout", 8), ("RequeuingLimitExceeded", 0)]
    times = [at for _, at, _ in evictions(log)]
    assert times[0] == 11, "admitted in the first second"
    assert times[1] - times[0] >= 15, "5 s held back, 10 s waited for"


async def test_pods_that_are_ready_in_time_are_left_alone_also_when_they_are_not_any_more() -> None:
    log, one, cluster = await begun(SETTINGS, workload(1, "a"))
    answer(cluster, "uid-00001", "ready")
    await turns(one, cluster, 20)
    answer(cluster, "uid-00001", "unready")
    await turns(one, cluster, 20)
    assert list(cluster.running) == ["uid-00001"]
    assert states(log)["uid-00001"].ready_reason == "WaitForRecovery"
    lawful(log)
    assert not evictions(log)


async def test_with_a_time_to_recover_pods_that_are_not_ready_again_in_time_cost_it_its_quota() -> None:
    settings = msgspec.structs.replace(SETTINGS, recovery_timeout_s=4)
    log, one, cluster = await begun(settings, workload(1, "a"))
    answer(cluster, "uid-00001", "ready")
    await turns(one, cluster, 1)
    answer(cluster, "uid-00001", "unready")
    await turns(one, cluster, 2)
    answer(cluster, "uid-00001", "ready")
    await turns(one, cluster, 20)
    assert states(log)["uid-00001"].ready_reason == "Recovered"
    answer(cluster, "uid-00001", "unready")
    await turns(one, cluster, 7)
    assert not cluster.running
    lawful(log)
    assert [reason for reason, _, _ in evictions(log)] == ["PodsReadyTimeout"]


async def test_a_workload_that_was_evicted_too_often_is_queued_anew_once_it_was_set_inactive() -> None:
    settings = msgspec.structs.replace(SETTINGS, backoff_limit=0)
    log, one, cluster = await begun(settings, workload(1, "a"))
    await turns(one, cluster, 20)
    assert states(log)["uid-00001"].reason == "RequeuingLimitExceeded"
    log.put(workload(1, "a"))
    await turns(one, cluster, 5)
    assert not cluster.running, "nobody has set it inactive"
    log.put(workload(1, "a", active=False))
    await turns(one, cluster, 1)
    assert states(log)["uid-00001"].reason == "Deactivated"
    log.put(workload(1, "a"))
    await turns(one, cluster, 2)
    assert list(cluster.running) == ["uid-00001"]
    assert states(log)["uid-00001"].requeue_count == 0
    lawful(log)


async def test_a_workload_that_was_evicted_so_waits_from_then_on_behind_those_that_came_before() -> None:
    settings = msgspec.structs.replace(SETTINGS, backoff_limit=None, backoff_base_s=1, backoff_max_s=1)
    log, one, cluster = await begun(settings, workload(1, "a"), workload(2, "a"), cpu="1")
    assert list(cluster.running) == ["uid-00001"]
    await turns(one, cluster, 16)
    assert list(cluster.running) == ["uid-00002"]
    answer(cluster, "uid-00002", "ready")
    await turns(one, cluster, 15)
    shown = with_status(workload(1, "a"), states(log)["uid-00001"]).status
    [evicted] = [each for each in shown.conditions or () if each.type == "Evicted"]
    assert (evicted.reason, evicted.status) == ("PodsReadyTimeout", "True")
    assert shown.requeue_state.count == 1
    lawful(log)


async def test_with_block_admission_one_workload_after_the_other_starts() -> None:
    settings = msgspec.structs.replace(SETTINGS, block_admission=True)
    log, one, cluster = await begun(settings, *(workload(number, "a") for number in (1, 2, 3)))
    started: list[str] = []
    for count in (1, 2, 3):
        await turns(one, cluster, 3)
        assert len(cluster.running) == count
        assert list(cluster.running)[: len(started)] == started
        started = list(cluster.running)
        answer(cluster, started[-1], "ready")
    lawful(log)


async def test_the_next_decider_knows_when_time_is_over() -> None:
    log, one, cluster = await begun(SETTINGS, workload(1, "a"))
    await turns(one, cluster, 6)
    second = term(log, "second", pods_ready=SETTINGS)
    await second.begin(one.done)
    await turns(second, cluster, 4)
    assert standing(log)["uid-00001"][0] in {"evicting", "pending"}
    lawful(log)
    assert [at for _, at, _ in evictions(log)] == [11]
