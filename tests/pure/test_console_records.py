"""Records that the history does not keep come from Kafka: by a figure, by their place, or by their trace."""

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slacktide.deploy.console.history.follower import LogRecords
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.store import Store
from slacktide.deploy.console.server import Live
from slacktide.schemas.headers import traceparent
from slacktide.schemas.topics import BY_NAME, COMMAND, OUTCOME, SAMPLE
from slacktide.streams.kafka import partition_of
from slacktide.streams.records import Place, Record
from testbed.chains import Chain, outcome
from testbed.console import stored
from testbed.samples import BOOT, START_MS

NODE = "node-1"
LAST = 700
SEQ = next(seq for seq in range(120, 130) if (START_MS // 1_000 + seq) % 10 == 9)
"""Also the last one of its point of 10 s."""
TRACE = f"{traceparent(f'{NODE}/{BOOT}', '', '')[3:19].decode()}{SEQ:016x}"


class Listed(LogRecords):
    """A log as a list."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__(None)
        self._records = {(one.place, one.offset): one for one in records}

    async def _read(self, offsets: Mapping[Place, int]) -> list[Record]:
        return [found for one in offsets.items() if (found := self._records.get(one)) is not None]


@pytest.fixture(scope="module")
def log() -> list[Record]:
    """Twelve minutes of a node whose use differs each second, with traces."""
    chain = Chain()
    for seq in range(1, LAST):
        chain.take(seq)
        chain.put(outcome(seq, age_ms=seq), OUTCOME, at_ms=START_MS + seq * 1_000 + 9)
    return [_traced(one) for one in chain.records if one.topic in BY_NAME]


def _traced(one: Record) -> Record:
    partition = 0 if BY_NAME[one.topic].partitions == 1 else partition_of(NODE, BY_NAME[one.topic].partitions)
    if one.topic not in {SAMPLE.name, COMMAND.name, OUTCOME.name}:
        return msgspec.structs.replace(one, partition=partition)
    body = msgspec.json.decode(one.value or b"")
    seq = body["now"][0] if one.topic == SAMPLE.name else body["seq"]
    header = traceparent(f"{NODE}/{BOOT}", one.topic, "test") % (seq, seq)
    return msgspec.structs.replace(one, partition=partition, headers=(("traceparent", header),))


@pytest.fixture(scope="module", params=["by the second", "by 10 s", "not stored yet"])
def history(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, log: list[Record]
) -> Iterator[tuple[Path, Recorder]]:
    """One that keeps hardly a record by itself, as one of 1,000 nodes."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slacktide.deploy.console.history.recorder.KEEP_MS_MIN", 3_600_000)
        if request.param == "not stored yet":
            yield path, stored(path, log, until_s=120)
            return
        stored(path, log)
        store = Store(path)
        while store.roll():
            pass
        if request.param == "by 10 s":
            store._db.execute("DELETE FROM p1")
        store.close()
        yield path, Recorder(0)  # nothing is new


@pytest.fixture
def live(history: tuple[Path, Recorder], log: list[Record]) -> Live:
    path, recorder = history
    return Live(History(path, lambda: recorder, Listed(log)), lambda: "")


async def asked(live: Live, path: str, **given: object) -> Any:
    await live.turn()
    found = await live.ask(path, {name: str(value) for name, value in given.items()})
    return msgspec.json.decode(gzip.decompress(found.body) if found.gzipped else found.body)


@pytest.mark.parametrize("after_s", [127, 123, 309, 590])
@pytest.mark.parametrize("figure", ["used_cpu_milli", "sold_cpu_milli", "decided_ms"])
async def test_a_figure_opens_the_record_that_it_is_of_at_any_resolution(live: Live, figure: str, after_s: int) -> None:
    given = {"node": NODE, "figure": figure, "at": START_MS + after_s * 1_000}
    [first, second, *lines] = (await asked(live, "explain", **given))["lines"]
    place = first.rpartition("of ")[2]
    assert not second, second
    assert any(place in line for line in lines), (first, lines)


@pytest.mark.parametrize("node", [NODE, ""])
async def test_a_trace_that_is_not_kept_is_read_from_kafka_from_sample_to_outcome(live: Live, node: str) -> None:
    for given in (TRACE, f"00-{TRACE}-00f067aa0ba902b7-01"):
        found = (await asked(live, "records", of=given, node=node, at=START_MS))["trace"]
        topics = [one["place"].partition(" ")[0] for one in found]
        assert all(one["trace"] == TRACE for one in found)
        assert [*dict.fromkeys(topics)] == [SAMPLE.name, COMMAND.name, OUTCOME.name]


@pytest.mark.parametrize("topic", [SAMPLE.name, COMMAND.name, OUTCOME.name])
async def test_a_place_opens_its_record(live: Live, topic: str) -> None:
    of = f"{topic} {partition_of(NODE, 12)}:{SEQ}"
    [one] = (await asked(live, "records", of=of))["trace"]
    assert one["place"] == of


@pytest.mark.parametrize(
    "of",
    [
        "slacktide.node.sample.v2 a:b", "slacktide.node.sample.v2 1:", f"slacktide.node.sample.v2 1:{10**30}",
        "slacktide.node.sample.v2 999:1", "another.topic 0:1", "00-x-y-z", "f" * 16, "f" * 32, "\x00", "' OR 1=1 --",
    ],
)  # fmt: skip
async def test_what_names_no_record_finds_none(live: Live, of: str) -> None:
    assert (await asked(live, "records", of=of))["trace"] == []
