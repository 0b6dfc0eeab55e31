"""Who had quota and who waited at an earlier moment is a page of the console, of its file: not only what is now."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from slacktide.deploy.console.answers import Question, answer
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import OBJECTS, Recorder
from slacktide.deploy.console.history.store import Store
from slacktide.streams.records import Record
from testbed.queue_log import FLAVOR, Cluster, Log, local, queue, term, turns, workload
from testbed.samples import START_MS

FOLLOWED = {topic.name for topic in OBJECTS}
MINUTE_MS = 60_000


async def preempted() -> list[Record]:
    """One workload holds all quota. A minute later another comes, which preempts it."""
    log = Log()
    log.put(FLAVOR, queue("gpu", "2"), local("gpu"), workload(0, "gpu", "2"))
    one, cluster = term(log, "first"), Cluster(log)
    await one.begin(None)
    await turns(one, cluster, 2)
    before = list(log.records)
    log.put(workload(1, "gpu", "2", priority=5))
    await turns(one, cluster, 4)
    after = [each for each in log.records if each not in before]
    return [
        msgspec.structs.replace(each, timestamp_ms=START_MS + minute * MINUTE_MS)
        for minute, records in enumerate((before, after))
        for each in records
        if each.topic in FOLLOWED
    ]


def test_the_console_shows_the_queue_as_it_stood_before_and_after_a_preemption(tmp_path: Path) -> None:
    recorder, store = Recorder(START_MS // 1_000), Store(tmp_path / "history.db")
    for record in asyncio.run(preempted()):
        recorder.take(record)
    recorder.advance(START_MS + 5 * MINUTE_MS)
    for minute in recorder.minutes:
        store.add(minute)
    recorder.minutes.clear()
    history = History(store.path, lambda: recorder)

    def shown(after_ms: int) -> dict[str, str]:
        page: Any = answer(history, "jobs", Question(at_ms=START_MS + after_ms, given={}))
        return {one["name"]: one["phase"] for one in page["workloads"]}

    assert shown(MINUTE_MS // 2) == {"jobs/w0": "reserved"}
    assert shown(2 * MINUTE_MS) == {"jobs/w0": "pending", "jobs/w1": "reserved"}
    store.close()
