"""Who preempted a Job, and by which shares, is a record and one command: no search in logs of the scheduler."""

import asyncio

from testbed.queue_log import FLAVOR, Cluster, Log, local, queue, term, turns, workload
from testbed.queue_place import text_of


def test_a_preempted_job_names_its_preemptor_with_queue_priority_reason_and_shares() -> None:
    async def run() -> None:
        log = Log()
        log.put(FLAVOR, queue("a", "4"), queue("b", "4"), local("a"), local("b"), workload(1, "a", "6"))
        one, cluster = term(log, "first"), Cluster(log)
        await one.begin(None)
        await turns(one, cluster, 2)
        log.put(workload(2, "b", "4", priority=10))
        await turns(one, cluster, 3)
        [eviction] = [each for decision in log.decisions() for each in decision.evictions]
        assert (eviction.preemptor.uid, eviction.victim.uid) == ("uid-00002", "uid-00001")
        text = text_of(log, "w1")
        assert "by jobs/w2 of b, priority 10: InCohortReclamation" in text
        assert "a borrowed 25% of its cohort, and then 0%" in text

    asyncio.run(run())
