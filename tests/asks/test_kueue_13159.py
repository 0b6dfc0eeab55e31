"""How long a Job will wait is one command: an interval from its position and the admissions of the last hour."""

import asyncio

from testbed.queue_log import FLAVOR, Cluster, Log, local, queue, term, turns, workload
from testbed.queue_place import place_of, text_of


def test_a_waiting_job_shows_position_and_an_interval_and_why_there_is_none() -> None:
    async def run() -> None:
        log = Log()
        log.put(FLAVOR, queue("a", "4"), local("a"), *(workload(number, "a") for number in range(4)))
        one, cluster = term(log, "first"), Cluster(log)
        await one.begin(None)
        await turns(one, cluster, 2)
        log.put(workload(7, "a"), workload(8, "a"))
        place = place_of(log, "w8")
        assert (place.position, place.pending_count) == (2, 2)
        assert place.wait is not None
        assert place.wait.state == "interval"
        assert 0 < place.wait.least_s < place.wait.most_s
        await turns(one, cluster, 2)
        assert "wait: unknown: it waits for quota: PreemptionNoCandidates" in text_of(log, "w8")

    asyncio.run(run())
