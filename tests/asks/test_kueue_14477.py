"""One ClusterQueue is not held to one admission in each cycle: all that fit are admitted by one decision."""

import asyncio

from testbed.queue_log import FLAVOR, Log, local, queue, term, workload


def test_two_hundred_workloads_of_one_queue_are_admitted_by_one_decision() -> None:
    async def run() -> None:
        log = Log()
        log.put(FLAVOR, queue("a", "200"), local("a"), *(workload(number, "a") for number in range(250)))
        one = term(log, "first")
        await one.begin(None)
        await one.act()
        [_, turn] = log.decisions()
        assert sum(state.phase == "reserved" for state in turn.changes) == 200

    asyncio.run(run())
