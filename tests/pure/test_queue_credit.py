"""Workloads that exceed a quota that shrank stop as the governor's budget allows, and only then."""

from collections.abc import Sequence

import pytest

from slacktide.agents.credit_account import QueueCredit
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import QUEUE
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.proof import ClusterKey, Verifier
from slacktide.schemas.queue import OfferedObject
from slacktide.schemas.topics import CREDIT, OUTCOME
from slacktide.streams.engine.queueing import Term
from slacktide.streams.governor.governor import Governor
from slacktide.streams.proofs import by_keys
from testbed.governed import policy_record
from testbed.proofs import cluster_key
from testbed.queue_log import FLAVOR, Cluster, Log, Reading, Writing, lawful, local, queue, term, turns, workload
from testbed.queue_nodes import sharing, sold

BUDGET = EvictionBudget(cluster_max=2, node_max=2, namespace_max=2, interval_s=60, lease_s=6)
WAITS_S = 8
"""A governor that begins waits so long, in case another one has granted before."""


class LogClock:
    """The time of the log, for credit."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def mono_ns(self) -> int:
        return self._log.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self._log.now_ms


class Governing:
    """A governor beside the queue."""

    def __init__(self, log: Log, key: ClusterKey | None = None) -> None:
        judge = by_keys(Verifier([] if key is None else [key]))
        self._log, self._governor, self._read = log, Governor("g", judge), 0
        self._governor.receive([policy_record(BUDGET, "off" if key is None else "required")], log.now_ms)
        self._governor.begin([], [], log.now_ms, log.now_ms)

    def tick(self) -> None:
        outcomes = self._log.topics.setdefault(OUTCOME.name, [])
        self._governor.receive(outcomes[self._read :], self._log.now_ms)
        self._read = len(outcomes)
        for out in self._governor.tick(self._log.now_ms, self._log.now_ms):
            at = self._log.append(out.topic, (out.key or b"").decode(), out.value)
            self._governor.receive(self._log.topics[CREDIT.name][at:], self._log.now_ms)


async def begun(*objects: object, keys: Sequence[ClusterKey] = ()) -> tuple[Log, Term, Cluster]:
    """Six workloads of one CPU run, and six CPUs are sold."""
    log = Log()
    log.put(FLAVOR, local("a"), *objects, *(workload(number, "a", priority=number) for number in range(6)))  # type: ignore[arg-type]
    one, cluster = term(log, "first"), Cluster(log)
    await one.begin(None)
    await turns(one, cluster, 3)
    assert len(cluster.running) == 6
    one.credit = QueueCredit(Reading(log), one.epoch, Writing(log), LogClock(log), keys)
    return log, one, cluster


async def shrunk(
    log: Log, one: Term, cluster: Cluster, change: object, seconds: int, key: ClusterKey | None = None
) -> None:
    log.put(change)  # type: ignore[arg-type]
    governing = Governing(log, key)
    for _ in range(seconds):
        await turns(one, cluster, 1)
        governing.tick()


def spent(log: Log) -> list[str]:
    outcomes = [decode(one.value, NodeOutcome) for one in log.topics.get(OUTCOME.name, [])]
    assert {one.node for one in outcomes} <= {QUEUE}
    return [one.target for one in outcomes if one.result == "applied"]


async def test_those_that_exceed_a_quota_stop_by_priority_and_no_more_in_an_interval_than_the_budget_allows() -> None:
    log, one, cluster = await begun(sharing("a"), sold(6_000))
    await shrunk(log, one, cluster, sold(3_000), WAITS_S)
    assert len(cluster.running) == 6, "nothing was granted yet"
    await shrunk(log, one, cluster, sold(3_000), 40)
    assert sorted(cluster.running) == [f"uid-0000{number}" for number in (2, 3, 4, 5)]
    assert spent(log) == ["workload/uid-00000", "workload/uid-00001"]
    reasons = {state.reason for done in log.decisions() for state in done.changes if state.phase == "evicting"}
    assert reasons == {"QuotaShrank"}
    lawful(log)


async def test_nobody_stops_who_does_not_exceed_a_quota_any_more() -> None:
    log, one, cluster = await begun(sharing("a"), sold(6_000))
    await shrunk(log, one, cluster, sold(5_000), WAITS_S + 30)
    assert len(cluster.running) == 5
    assert len(spent(log)) == 1
    lawful(log)


@pytest.mark.parametrize(("signs_with", "running"), [(1, 4), (2, 6), (None, 6)])
async def test_where_proofs_are_required_only_an_account_with_the_cluster_key_gets_credit(signs_with, running) -> None:
    keys = [] if signs_with is None else [cluster_key(signs_with)]
    log, one, cluster = await begun(sharing("a"), sold(6_000), keys=keys)
    await shrunk(log, one, cluster, sold(3_000), WAITS_S + 30, cluster_key(1))
    assert len(cluster.running) == running


async def test_nobody_stops_for_a_quota_that_an_operator_made_smaller() -> None:
    log, one, cluster = await begun(queue("a", "6"))
    await shrunk(log, one, cluster, queue("a", "1"), WAITS_S + 10)
    assert len(cluster.running) == 6
    assert not spent(log)


async def test_without_a_governor_nobody_stops_and_credit_is_asked_for_once_a_second() -> None:
    log, one, cluster = await begun(sharing("a"), sold(6_000))
    log.put(OfferedObject(metadata=sold(0).metadata))
    await turns(one, cluster, 5)
    assert len(cluster.running) == 6
    asked = [decode(record.value, NodeOutcome) for record in log.topics[OUTCOME.name]]
    assert 3 <= len(asked) <= 5
    assert {(each.result, each.reason) for each in asked} == {("refused", "no credit")}
