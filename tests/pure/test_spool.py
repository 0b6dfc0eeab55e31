"""The spool: what was concluded reaches the log at least once, in order, whatever dies in between."""

import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node import spool as spools
from slacktide.agents.node.interfaces import Spool
from slacktide.agents.node.spool import DiskSpool, MemorySpool
from slacktide.schemas.codec import encode
from slacktide.schemas.outcome import NodeOutcome, PodName

JOB = PodName(namespace="batch", name="job")


def outcome(number: int, *, pod: PodName | None = None, name: str = "") -> NodeOutcome:
    """An outcome whose seq is its place in the order."""
    return NodeOutcome(
        node="n1",
        boot_id="000000000001-00000000",
        seq=number,
        command_id=name or f"id-{number}",
        rule="cpu_suppress" if pod is None else "BEMemoryEvict",
        target="be",
        origin="stream",
        result="applied",
        policy_version="p",
        observed_ms=1,
        acted_ms=2,
        age_ms=3,
        pod=pod,
    )


def drained(spool: Spool) -> list[NodeOutcome]:
    """Deliver and acknowledge everything."""
    sent: list[NodeOutcome] = []
    while batch := spool.pending(100):
        sent += [one for _, one in batch]
        spool.acknowledge(batch[-1][0])
    return sent


class Died(BaseException):
    """The process is gone in the middle of a write."""


class Dying(sqlite3.Connection):
    """Dies at the n-th statement from now on, before it or after it; what is not committed is lost."""

    steps_left = -1
    after = False
    connected: ClassVar[list[sqlite3.Connection]] = []

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        Dying.connected.append(self)

    def execute(self, *args):
        return self._perhaps(super().execute, *args)

    def executemany(self, *args):
        return self._perhaps(super().executemany, *args)

    def _perhaps(self, work, *args):
        Dying.steps_left -= 1
        if Dying.steps_left != -1:
            return work(*args)
        if Dying.after:
            work(*args)
        while Dying.connected:  # as the kernel does for a dead process
            Dying.connected.pop().close()
        raise Died


@contextmanager
def connected_by(kind: type[sqlite3.Connection]):
    """Let spools use connections of this class."""
    plain = sqlite3.connect
    sqlite3.connect = partial(plain, factory=kind)
    try:
        yield
    finally:
        sqlite3.connect = plain


class Run:
    """A spool in use, what was done with it, and the log that it fills."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder, self.bytes_max = folder, bytes_max
        self.number = 0
        self.begun: list[str] = []
        self.open: list[str] = []
        self.concluded: list[int] = []
        self.log: list[NodeOutcome] = []
        self.acknowledged: set[int] = set()
        self.spool = DiskSpool(folder, bytes_max)

    def step(self, action: str, choice: int, dies_after: int, after: int) -> None:
        Dying.steps_left, Dying.after = dies_after, bool(after)
        try:
            getattr(self, action)(choice)
        except Died:
            Dying.steps_left = -1
            self.restart(choice)
        Dying.steps_left = -1

    def intend(self, _: int) -> None:
        self.number += 1
        intent = outcome(self.number)
        self.spool.intend(intent)
        self.begun.append(intent.command_id)
        self.open.append(intent.command_id)

    def conclude(self, choice: int) -> None:
        if self.open:
            name = self.open.pop(choice % len(self.open))
            self.number += 1
            self.spool.conclude(outcome(self.number, name=name))
            self.concluded.append(self.number)

    def refuse(self, _: int) -> None:
        self.number += 1
        self.spool.conclude(outcome(self.number))
        self.concluded.append(self.number)

    def send(self, choice: int) -> None:
        batch = self.spool.pending(1 + choice)
        assert self.acknowledged.isdisjoint(one.seq for _, one in batch), "delivered again after its acknowledgement"
        self.log += [one for _, one in batch]
        if batch:
            self.spool.acknowledge(batch[-1][0])
            self.acknowledged |= {one.seq for _, one in batch}

    def restart(self, _: int) -> None:
        self.spool.close()
        self.spool = DiskSpool(self.folder, self.bytes_max)
        self.open = [one.command_id for one in self.spool.interrupted()]


steps = st.lists(
    st.tuples(
        st.sampled_from(["intend", "intend", "conclude", "conclude", "refuse", "send", "restart"]),
        st.integers(0, 5),
        st.sampled_from([-1, -1, -1, *range(8)]),
        st.integers(0, 1),
    ),
    max_size=40,
)


@given(steps=steps, bytes_max=st.sampled_from([40_000, 1_000_000]))
def test_every_intent_ends_in_exactly_one_conclusion_delivered_in_order(steps, bytes_max) -> None:
    """Whatever is done, and wherever the process dies: nothing is lost, invented, or out of order."""
    with tempfile.TemporaryDirectory() as folder, connected_by(Dying):
        run = Run(Path(folder), bytes_max)
        for step in steps:
            run.step(*step)
        run.restart(0)
        while run.open:
            run.conclude(0)
        run.log += drained(run.spool)
        run.spool.close()

    first = list(dict.fromkeys(one.seq for one in run.log))
    assert first == sorted(first), "out of order"
    assert set(run.concluded) <= set(first), "lost"
    by_act: dict[str, set[int]] = {}
    for one in run.log:
        by_act.setdefault(one.command_id, set()).add(one.seq)
    assert all(len(seqs) == 1 for seqs in by_act.values()), "an act with two conclusions"
    assert set(run.begun) <= set(by_act), "an act without a conclusion"


@given(evictions=st.lists(st.booleans(), max_size=120), send_at=st.sets(st.integers(0, 119)), restart=st.booleans())
def test_full_spool_counts_what_it_merges_and_keeps_every_eviction(evictions, send_at, restart) -> None:
    """Outcomes and counts add up to what was concluded; the folder stays about as small as it must."""
    with tempfile.TemporaryDirectory() as folder:
        spool = DiskSpool(Path(folder), 4_000)
        sent: list[NodeOutcome] = []
        for number, evicts in enumerate(evictions):
            spool.conclude(outcome(number, pod=JOB if evicts else None))
            assert spool.bytes_used < 4_000 + 1_000 * (1 + 2 * sum(evictions))
            if number in send_at:
                sent += drained(spool)
        if restart:
            spool.close()
            spool = DiskSpool(Path(folder), 4_000)
        sent += drained(spool)
        spool.close()

    assert sum(one.count for one in sent) == len(evictions)
    assert sum(one.pod == JOB for one in sent) == sum(evictions)
    assert [one.seq for one in sent] == sorted(one.seq for one in sent)
    assert all(one.count == 1 or one.result == "gap" for one in sent)


class Refusing(sqlite3.Connection):
    """A disk that takes nothing until it is mended."""

    broken = False

    def execute(self, *args):
        if Refusing.broken:
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(*args)

    def executemany(self, *args):
        if Refusing.broken:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return super().executemany(*args)


@given(broken=st.lists(st.booleans(), min_size=1, max_size=60), send=st.sets(st.integers(0, 59)))
def test_disk_that_refuses_stops_no_act(broken, send) -> None:
    """A full or read-only disk is counted; outcomes wait in memory and go out in order."""
    with tempfile.TemporaryDirectory() as folder, connected_by(Refusing):
        spool = DiskSpool(Path(folder))
        sent: list[NodeOutcome] = []
        for number, Refusing.broken in enumerate(broken):
            spool.intend(outcome(number))
            spool.conclude(outcome(number))
            if number in send:
                sent += drained(spool)
        sent += drained(spool)
        Refusing.broken = False
        sent += drained(spool)
        spool.close()
        assert (spool.failures > 0) == any(broken)

    assert [one.seq for one in sent] == list(range(len(broken)))


def test_outcomes_on_a_disk_that_cannot_be_read_wait_for_it(tmp_path: Path) -> None:
    """What lies behind the window is on disk alone: newer ones in memory neither overtake it nor stand for it."""
    with connected_by(Refusing):
        spool = DiskSpool(tmp_path)
        for number in range(600):
            spool.conclude(outcome(number))
        Refusing.broken = True
        for number in range(600, 610):
            spool.conclude(outcome(number))
        before = drained(spool)
        Refusing.broken = False
        after = drained(spool)
        spool.close()

    assert [one.seq for one in before] == list(range(spools.WINDOW))
    assert [one.seq for one in after] == list(range(spools.WINDOW, 610))


def test_memory_is_bounded_while_the_disk_refuses(tmp_path: Path) -> None:
    """Beyond a thousand outcomes the rest is counted, and the count survives."""
    with connected_by(Refusing):
        Refusing.broken = True
        spool = DiskSpool(tmp_path)
        for number in range(3_000):
            spool.conclude(outcome(number))
        sent = drained(spool)
        Refusing.broken = False

    assert len(sent) == spools.UNWRITTEN_MAX + 1
    assert (sent[-1].result, sent[-1].count) == ("gap", 3_000 - spools.UNWRITTEN_MAX)


def test_folder_that_cannot_be_made_is_survived(tmp_path: Path) -> None:
    """Without a folder at all the spool still works, in memory."""
    (tmp_path / "file").write_text("in the way")
    spool = DiskSpool(tmp_path / "file" / "spool")
    spool.intend(outcome(1))
    spool.conclude(outcome(1))

    assert [one.seq for one in drained(spool)] == [1]
    assert spool.failures > 0


def test_a_damaged_database_is_set_aside_and_counted(tmp_path: Path) -> None:
    """A file that nobody can read costs what it held, and a count; the spool goes on in a new one."""
    (tmp_path / "spool.db").write_bytes(b"not a database" * 1_000)
    spool = DiskSpool(tmp_path)
    spool.intend(outcome(1))
    spool.conclude(outcome(2))
    spool.close()
    again = DiskSpool(tmp_path)

    assert [one.seq for one in again.interrupted()] == [1]
    assert [one.seq for one in drained(again)] == [2]
    assert (spool.torn, spool.failures, again.torn) == (1, 1, 0)
    assert (tmp_path / "spool.db.damaged").read_bytes().startswith(b"not a database")
    again.close()


def test_a_database_that_is_damaged_in_use_is_begun_anew(tmp_path: Path) -> None:
    """What memory holds goes into the new one: open intents, and the oldest outcomes."""
    spool = DiskSpool(tmp_path)
    spool.intend(outcome(1))
    for number in range(2, 5):
        spool.conclude(outcome(number))
    for name in ("spool.db", "spool.db-wal"):
        path = tmp_path / name
        path.write_bytes(b"\xff" * path.stat().st_size)
    spool._database.close()
    spool.conclude(outcome(5))
    spool.conclude(outcome(6))

    assert [one.seq for one in drained(spool)] == [2, 3, 4, 5, 6]
    assert spool.torn == 1
    spool.close()
    assert [one.seq for one in DiskSpool(tmp_path).interrupted()] == [1]


def test_a_record_that_nobody_can_read_is_skipped_and_counted(tmp_path: Path) -> None:
    """It does not hide the others."""
    spool = DiskSpool(tmp_path)
    for number in range(1, 2_000):
        spool.conclude(outcome(number))
    spool.close()
    with closing(spools.connect(tmp_path / "spool.db")) as db:
        db.execute("UPDATE outcome SET body = ? WHERE position BETWEEN 2 AND 1500", (b"{",))
        for position, body in enumerate((b'{"node":"\xff"}', b"[" * 9_999, 7, 0.5, "text"), 2):
            db.execute("UPDATE outcome SET body = ? WHERE position = ?", (body, position))
        db.execute("INSERT INTO intent (body) VALUES (?)", (b"[]",))
        db.execute("INSERT INTO gap VALUES (1, ?)", (b"no",))
    again = DiskSpool(tmp_path)

    assert [one.seq for one in drained(again)] == [1, *range(1_501, 2_000)]
    assert again.interrupted() == []
    assert again.torn == 1_499 + 2
    again.close()


def _waiting() -> bytes:
    """A database with two intents, thirty outcomes and a gap."""
    with tempfile.TemporaryDirectory() as folder:
        spool = DiskSpool(Path(folder), 20_000)
        for number in range(2):
            spool.intend(outcome(number))
        for number in range(2, 80):
            spool.conclude(outcome(number))
        spool.close()
        return (Path(folder) / "spool.db").read_bytes()


WAITING = _waiting()


@given(at=st.integers(0, len(WAITING) * 8 - 1))
def test_one_flipped_bit_ends_no_agent_and_hides_no_later_outcome(at: int) -> None:
    """Wherever it is: in a row, a position, a page's head or the schema."""
    raw = bytearray(WAITING)
    raw[at // 8] ^= 1 << at % 8
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spool.db").write_bytes(raw)
        spool = DiskSpool(Path(folder), 1_000_000)
        spool.interrupted()
        spool.conclude(outcome(1_000))
        sent = [*drained(spool), *drained(spool)]
        spool.close()

    assert [one.seq for one in sent][-1:] == [1_000]


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL, without a close: what was concluded is there."""
    program = (
        "import os, sys; from pathlib import Path; "
        "from slacktide.agents.node.spool import DiskSpool; from slacktide.schemas.codec import decode; "
        "from slacktide.schemas.outcome import NodeOutcome; "
        "spool = DiskSpool(Path(sys.argv[1])); one = decode(sys.argv[2].encode(), NodeOutcome); "
        "spool.intend(one); [spool.conclude(one) for _ in range(500)]; spool.intend(one); os.kill(os.getpid(), 9)"
    )
    one = outcome(7)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), encode(one).decode()], check=False)
    spool = DiskSpool(tmp_path)

    assert done.returncode == -9
    assert spool.interrupted() == [one]
    assert drained(spool) == [one] * 500
    assert (spool.torn, spool.failures) == (0, 0)
    spool.close()


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """A database that may not grow: outcomes wait in memory, and are written when there is room again."""
    spool = DiskSpool(tmp_path)
    spool.conclude(outcome(0))
    spool._database._db.execute("PRAGMA max_page_count = 8")
    for number in range(1, 200):
        spool.conclude(outcome(number))
    assert spool.failures > 0
    sent = drained(spool)
    spool.close()

    assert [one.seq for one in sent] == list(range(200))
    assert drained(DiskSpool(tmp_path)) == []


def test_long_outage_is_kept_on_disk_and_little_in_memory(tmp_path: Path) -> None:
    """Thousands of outcomes wait on disk; the window in memory stays small; their room is used again."""
    spool = DiskSpool(tmp_path)
    for number in range(5_000):
        spool.conclude(outcome(number))
    size = (tmp_path / "spool.db").stat().st_size

    assert len(spool._window) <= spools.WINDOW
    assert spool.waiting == 5_000
    assert spool.bytes_used > 1_000_000
    assert [one.seq for one in drained(spool)] == list(range(5_000))
    assert (spool.waiting, spool.bytes_used) == (0, 0)
    for number in range(5_000):
        spool.conclude(outcome(number))
    assert (tmp_path / "spool.db").stat().st_size <= size * 1.1
    spool.close()


def test_quiet_life_needs_little_room(tmp_path: Path) -> None:
    """An outcome a second, each acknowledged."""
    spool = DiskSpool(tmp_path)
    for number in range(1_000):
        spool.intend(outcome(number))
        spool.conclude(outcome(number))
        drained(spool)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000
    assert {path.name for path in tmp_path.iterdir()} == {"spool.db", "spool.db-wal"}
    assert (tmp_path / "spool.db").stat().st_mode & 0o077 == 0
    spool.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_both_spools_speak_alike(kind: str, tmp_path: Path) -> None:
    """An intent is interrupted until it is concluded; a conclusion is pending until it is acknowledged."""
    spool: Spool = MemorySpool() if kind == "memory" else DiskSpool(tmp_path)
    spool.intend(outcome(1))
    spool.intend(outcome(2))

    assert [one.seq for one in spool.interrupted()] == [1, 2]
    spool.conclude(msgspec.structs.replace(outcome(1), result="failed"))
    assert [one.seq for one in spool.interrupted()] == [2]
    spool.conclude(outcome(3))
    [(first, one), (second, _)] = spool.pending(10)
    assert (one.result, second > first) == ("failed", True)
    spool.acknowledge(first)
    assert [one.seq for _, one in spool.pending(10)] == [3]
    assert spool.pending(0) == []
    if isinstance(spool, DiskSpool):
        spool.close()


def test_acts_beside_one_that_stays_open_leave_no_trace(tmp_path: Path) -> None:
    """A pod may take for ever to end."""
    spool = DiskSpool(tmp_path)
    spool.intend(outcome(0, pod=JOB))
    for number in range(1, 1_000):
        spool.intend(outcome(number))
        spool.conclude(outcome(number))
        drained(spool)
    size = (tmp_path / "spool.db").stat().st_size
    spool.close()

    assert size < 100_000
    assert [one.seq for one in DiskSpool(tmp_path).interrupted()] == [0]


@pytest.mark.parametrize("position", [2**63 - 1, 2**63 - 2, 2**62, -(2**62)])
def test_a_damaged_position_costs_its_outcome_and_none_of_the_next(tmp_path: Path, position: int) -> None:
    """Behind the highest number there is none, so that nothing could be written any more."""
    with closing(DiskSpool(tmp_path)) as spool:
        spool.conclude(outcome(1))
        spool.conclude(outcome(2))
    with closing(sqlite3.connect(tmp_path / "spool.db")) as db:
        db.execute("UPDATE outcome SET position = ? WHERE position = 2", (position,))
        db.commit()

    with closing(DiskSpool(tmp_path)) as spool:
        for number in (3, 4, 5):
            spool.conclude(outcome(number))
        assert spool.waiting <= 5
    with closing(DiskSpool(tmp_path)) as spool:
        assert [one.seq for one in drained(spool) if one.seq != 2] == [1, 3, 4, 5]
        assert spool.failures == 0
