"""The console's history: killed anywhere it continues, what is missing is reported, and its file stays bounded."""

import asyncio
import random
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.deploy.console.answers import QUESTIONS, NotKeptError, Question, answer
from slacktide.deploy.console.history.file import PAGE_BYTES, StoreError
from slacktide.deploy.console.history.follower import Follower
from slacktide.deploy.console.history.minute import Minute, unpack_kept
from slacktide.deploy.console.history.points import FINE, POINTS, empty
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import OBJECTS, STATE, TOPICS
from slacktide.deploy.console.history.store import SIZE_BYTES_MIN, Store
from slacktide.deploy.console.run import FILE
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.outcome import Spent
from slacktide.schemas.sample_columns_codec import identity_of as named_identity
from slacktide.schemas.topics import CREDIT, JOB_STATUS, METRIC, OUTCOME, SAMPLE
from slacktide.streams.kafka import Lost
from slacktide.streams.records import Place, Record
from testbed.chains import Chain, evicted, outcome
from testbed.console import stored
from testbed.samples import BOOT, START_MS
from testbed.vectors import each_row

MINUTES = 6
BEGIN_S = START_MS // 60_000 * 60
NODE = "node-1"
ENUMERATED = {"present", "state", "severity", "origin", "sample_topic"}


class Still:
    """A clock that stands at the log's end."""

    def mono_ns(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return BEGIN_S * 1_000


@dataclass
class Listed:
    """A log as a list, read as ``Merged`` reads one: by time, from cursors on."""

    records: Sequence[Record]
    begin: int = 0

    def places(self, cursors: Mapping[Place, int]) -> list[Lost]:
        return [
            Lost(place=place, wanted=wanted, begin=self.begin) for place, wanted in cursors.items()
            if wanted < self.begin
        ]  # fmt: skip

    def since(self, cursors: Mapping[Place, int]) -> Iterable[Record]:
        compacted = {topic.name for topic in (*STATE, *OBJECTS)}
        for record in self.records:
            if record.topic in compacted or record.offset >= max(self.begin, cursors.get(record.place, 0)):
                yield record


@cache
def recorded() -> tuple[Record, ...]:
    """Six minutes of a node's real answers and figures, with outcomes, an eviction, a Job and credits; by time."""
    chain = Chain()
    for seq in range(1, 60 * MINUTES):
        chain.take(seq)
        chain.put(outcome(seq, result="unchanged" if seq % 3 else "applied"), OUTCOME, at_ms=START_MS + seq * 1_000 + 9)
        if seq == 150:
            chain.put(evicted(seq, spent=Spent(evictions=1)), OUTCOME, at_ms=START_MS + seq * 1_000 + 9)
        if seq % 25 == 0:
            status = JobStatus(uid="u", namespace="jobs", name="etl", folded_to=seq, observed_ms=0, active=seq)
            lease = EvictionCredit(node=NODE, boot_id=BOOT, epoch=1, number=seq, granted=seq // 50, ttl_ms=9)
            chain.put(status, JOB_STATUS, key="u", at_ms=START_MS + seq * 1_000)
            chain.put(lease, CREDIT, at_ms=START_MS + seq * 1_000)
    read_by_it = {topic.name for topic in TOPICS}
    read = [one for one in chain.records if one.topic in read_by_it]
    return tuple(sorted(read, key=lambda one: one.timestamp_ms))


def followed(path: Path, log: Listed, most: int | None = None) -> bool:
    """Follow it, and be killed after so many records; whether its end was reached."""
    store = Store(path)
    follower = Follower(Cluster("127.0.0.1:1"), store, Still())

    async def run() -> bool:
        begun = await follower._begin(_Reader(log))
        assert begun is None
        rewound = {place: rewind for place, (_, rewind) in store.cursors().items()}
        for count, record in enumerate(log.since(rewound)):
            if most is not None and count >= most:
                return False
            follower._take(record)
            await follower._store()
        return True

    try:
        return asyncio.run(run())
    finally:
        store.close()


class _Reader:
    def __init__(self, log: Listed) -> None:
        self._log = log

    async def begin(self, cursors: Mapping[Place, int], since_ms: int) -> list[Lost]:
        del since_ms
        return self._log.places(cursors)


def content(path: Path) -> dict[str, list[tuple]]:
    """All that is stored, but which numbers its rows have, and how often a kept record explains another one."""
    db = sqlite3.connect(path)
    try:
        tables = ("p1", "cursor", "gap", "rate", "text")
        found = {table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables}
        asked = "SELECT topic, partition, offset, at_ms, node, record FROM entry ORDER BY 1, 2, 3"
        kept = [unpack_kept(blob).records for (blob,) in db.execute("SELECT records FROM kept")]
        records = sorted({(one.topic, one.offset, one.value) for some in kept for one in some})
        versions = db.execute(
            "SELECT topic, key, at_ms, until_ms, row, record FROM object JOIN version ON object = id ORDER BY 1, 2, 3"
        ).fetchall()
        assert len(versions) > 10
        return found | {"entry": db.execute(asked).fetchall(), "kept": records, "version": versions}
    finally:
        db.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded without a break."""
    path = tmp_path_factory.mktemp("whole") / "history.db"
    assert followed(path, Listed(recorded()))
    return path


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 30))
def test_killed_at_random_points_it_continues_without_double_or_missing(tmp_path_factory, whole: Path, seed) -> None:
    draw, path = random.Random(seed), tmp_path_factory.mktemp("killed") / "history.db"
    while not followed(path, Listed(recorded()), draw.randrange(200, 2_500)):
        pass
    assert content(path) == content(whole)


def test_each_second_of_the_log_is_there_once(whole: Path) -> None:
    history = History(whole)
    series = history.node_series(NODE, START_MS, START_MS + 300_000, 300)
    assert list(series.at_ms) == [START_MS + 1_000 * at for at in range(300)]
    assert list(series.columns["seq"])[1:] == list(range(1, 300))
    assert set(series.columns["be_cpu_milli"][1:]) == {500}
    assert sum(series.columns["evictions"]) == 1
    [event] = history.pods.events("jobs/etl-x2lqp", START_MS, START_MS + 400_000)
    assert (event.kind, event.node, event.uid) == ("evicted", NODE, "uid-etl-x2lqp")
    assert "83" in event.text


def test_a_decision_has_its_arithmetic_and_its_places(whole: Path) -> None:
    history = History(whole)
    decision = history.decisions.at(NODE, START_MS + 200_000)
    assert decision is not None
    steps = {step.name: step for step in decision.explanation.steps}
    assert steps.keys() >= {"sample", "window", "allocatable", "command", "outcome"}
    row = next(row for row in history.cluster_at(START_MS + 200_000) if row.node == NODE)
    at = steps["allocatable"].place
    assert row.places["allocatable"] == (at.topic, 0, at.offset) or row.sold_cpu_milli is not None
    assert all(step.place.logged_ms <= START_MS + 200_000 for step in steps.values())
    assert history.policy_at(START_MS + 200_000)[0] is not None


def test_what_is_gone_from_the_log_is_a_gap_and_never_a_figure(tmp_path: Path) -> None:
    path, log = tmp_path / "history.db", recorded()
    followed(path, Listed(log), 1_000)
    stored_s = Store(path).newest_s
    cut = next(one.offset for one in log if one.topic == OUTCOME.name and one.timestamp_ms >= (stored_s + 100) * 1_000)
    later = [one for one in log if one.timestamp_ms >= (stored_s + 100) * 1_000 or one.topic == METRIC.name]
    followed(path, Listed(later, begin=cut))
    history = History(path)
    gaps = history.bounds().gaps
    assert gaps
    assert {(gap.from_ms, gap.to_ms // 1_000) for gap in gaps} == {(stored_s * 1_000, stored_s + 100)}
    assert "is no longer in Kafka" in gaps[0].reason
    series = history.node_series(NODE, stored_s * 1_000, (stored_s + 100) * 1_000, 100)
    assert not series.at_ms
    assert [one.name for one in history.problems_at((stored_s + 50) * 1_000)][:1] == ["missing"]


@pytest.mark.parametrize("damage", ["tail", "middle", "no file of it"])
def test_a_damaged_file_is_set_aside_and_what_can_be_read_is_kept(tmp_path: Path, whole: Path, damage: str) -> None:
    path = tmp_path / "history.db"
    raw = bytearray(whole.read_bytes())
    if damage == "tail":
        raw = raw[: len(raw) * 2 // 3]
    elif damage == "middle":
        raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    else:
        raw[:] = b"not a database" * 500
    path.write_bytes(raw)
    assert followed(path, Listed(recorded()))
    history = History(path)
    assert path.with_name("history.db.aside").exists()
    assert "could not be read" in history.bounds().gaps[0].reason
    row = history.cluster_at(START_MS + 290_000)
    assert [one.node for one in row] == [NODE]


def test_a_file_that_is_torn_while_it_is_written_to_is_set_aside_and_followed_on(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store, history = Store(path), History(path)
    for minute in range(4):
        store.add(_noise(BEGIN_S + minute * POINTS, nodes=40, seed=minute))
    assert len(history.cluster_at(BEGIN_S * 1_000)) == 40
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = bytearray(path.read_bytes())
    raw[PAGE_BYTES:] = bytes(len(raw) - PAGE_BYTES)
    path.write_bytes(raw)
    store._db.execute("PRAGMA shrink_memory")  # nor does the process have the pages any more
    with pytest.raises(StoreError, match="try again: the console renames"):
        History(path).cluster_at(BEGIN_S * 1_000)
    for minute in range(4, 7):
        store.add(_noise(BEGIN_S + minute * POINTS, nodes=40, seed=minute))
    assert len(history.cluster_at((BEGIN_S + 6 * POINTS) * 1_000)) == 40
    assert "could not be read" in history.bounds().gaps[0].reason
    store.close()


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_four_hundred_changed_bytes_end_no_console_and_fail_no_page(tmp_path_factory, whole: Path, seed: int) -> None:
    """At a start and while it runs: rows are lost, or the file is set aside at the first read of the damage."""
    path, draw = tmp_path_factory.mktemp("changed") / "history.db", random.Random(seed)
    at_start, later = (bytearray(whole.read_bytes()) for _ in range(2))
    for raw in (at_start, later):
        for _ in range(400):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
    path.write_bytes(at_start)
    assert followed(path, Listed(recorded()))
    store = Store(path)
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    history = History(path, report=store.report)
    path.write_bytes(later)
    store._db.execute("PRAGMA shrink_memory")
    _goes_on(store, history, seeds=(seed, seed))


@each_row("changed")
def test_a_value_of_another_type_costs_its_row_only(tmp_path: Path, whole: Path, changed: str) -> None:
    """One changed bit of a row's head makes a text a blob, or a number another one."""
    path = tmp_path / "history.db"
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        db.execute(changed)
        db.commit()
    assert followed(path, Listed(recorded()))
    store = Store(path)
    history = History(path, report=store.report)
    _goes_on(store, history, seeds=(0, 1))


def test_a_full_file_loses_the_oldest_and_stays_within_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = Store(path, size_bytes_max=1)
    for minute in range(24):
        store.add(_noise(BEGIN_S + minute * POINTS, nodes=15, seed=minute))
        while store.roll():
            pass
    assert path.stat().st_size <= SIZE_BYTES_MIN
    assert store.size_bytes() > SIZE_BYTES_MIN // 3
    store.close()
    history = History(path)
    bounds = history.bounds()
    assert bounds.oldest_ms is not None
    assert bounds.steps_ms[1_000] > BEGIN_S * 1_000
    assert bounds.steps_ms[10_000] <= bounds.steps_ms[1_000]
    assert len(history.cluster_at((BEGIN_S + 23 * POINTS) * 1_000)) == 15


def test_a_disk_without_room_costs_minutes_which_are_reported(tmp_path: Path) -> None:
    path, log = tmp_path / "history.db", recorded()
    store = Store(path)
    follower = Follower(Cluster("127.0.0.1:1"), store, Still())
    add, calls = store.add, 0

    def full(minute: Minute) -> None:
        nonlocal calls
        calls += 1
        if calls in {2, 3}:
            pages = store._db.execute("PRAGMA page_count").fetchone()[0]
            store._db.execute(f"PRAGMA max_page_count={pages}")
            with pytest.raises(StoreError, match="free disk space"):
                add(_noise(minute.start_s, nodes=20, seed=1))
            store._db.execute("PRAGMA max_page_count=100000")
            raise StoreError("history.db: cannot write a minute: full; free disk space")
        add(minute)

    store.add = full  # type: ignore[method-assign]

    async def run() -> None:
        await follower._begin(_Reader(Listed(log)))
        for record in log:
            follower._take(record)
            await follower._store()

    asyncio.run(run())
    [gap] = [gap for gap in History(path).bounds().gaps if gap.reason.startswith("the history file")]
    assert gap.to_ms - gap.from_ms == 120_000
    store.close()


def _goes_on(store: Store, history: History, *, seeds: tuple[int, int]) -> None:
    """Each page is asked and a minute added, twice: the first may find the damage, and the second works."""
    asked = {"node": NODE, "pod": "jobs/etl", "job": "jobs/etl", "of": f"{OUTCOME.name} 0:9"}
    for minute, seed in enumerate(seeds):
        for one in QUESTIONS:
            with suppress(NotKeptError, *(() if minute else (StoreError,))):
                answer(history, one, Question(at_ms=START_MS + 200_000, given=asked))
        store.roll()
        store.add(_noise(BEGIN_S + (8 + minute) * POINTS, nodes=2, seed=seed))
    store.close()


def _noise(start_s: int, *, nodes: int, seed: int) -> Minute:
    draw, blocks = random.Random(seed), {}
    for number in range(nodes):
        block = empty(1)
        for name, column in zip(FINE, block, strict=True):
            for slot in range(POINTS):
                column[slot] = 1 if name in ENUMERATED else draw.randrange(1 << 20)
        blocks[f"node-{number}"] = block
    return Minute(start_s=start_s, blocks=blocks, kept={}, entries=[], rates={}, offsets={}, firsts={}, texts=[])


def test_a_sample_that_carries_only_a_changed_pod_list_explains_those_that_follow(tmp_path: Path) -> None:
    """An agent sends facts and pods each minute, and of a change only what changed."""
    chain = Chain()
    chain.run(1, 14)
    chain.pods = chain.pods[:1]
    chain.take(15, pods=chain.pods)
    chain.run(16, 18)
    recorder = stored(tmp_path / FILE, chain.records)

    found = History(tmp_path / FILE, lambda: recorder).decisions.at(NODE, START_MS + 18_500)

    assert found is not None
    samples = [one for one in found.records if one.topic == SAMPLE.name]
    assert [named_identity(one.value or b"")[1] for one in samples] == [11, 15, 18]
