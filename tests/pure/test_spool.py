"""The spool: what was concluded reaches the log at least once, in order, whatever dies in between."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.agents.node import intents, spool_files
from slacktide.agents.node import spool as spools
from slacktide.agents.node.spool import DiskSpool, MemorySpool, Spool
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


class Dying:
    """Lets the n-th file operation from now on be the last, cut short at a fraction of its bytes."""

    def __init__(self) -> None:
        self.steps_left = -1
        self.fraction = 0.0
        self._line, self._whole = spool_files.write_line, spool_files.write_whole

    def write_line(self, fd: int, line: bytes) -> None:
        if self._now():
            os.write(fd, line[: round(self.fraction * len(line))])
            raise Died
        self._line(fd, line)

    def write_whole(self, path: Path, content: bytes) -> None:
        if self._now():
            if self.fraction > 0.5:
                self._whole(path, content)
            raise Died
        self._whole(path, content)

    def _now(self) -> bool:
        self.steps_left -= 1
        return self.steps_left == -1


@contextmanager
def patched(writer: object):
    """Let spools write through this."""
    old = spool_files.write_line, spool_files.write_whole
    for module in (spool_files, intents, spools):
        for name in ("write_line", "write_whole"):
            if hasattr(module, name):
                setattr(module, name, getattr(writer, name))
    try:
        yield
    finally:
        for module in (spool_files, intents, spools):
            for name, function in zip(("write_line", "write_whole"), old, strict=True):
                if hasattr(module, name):
                    setattr(module, name, function)


class Run:
    """A spool in use, what was done with it, and the log that it fills."""

    def __init__(self, folder: Path, dying: Dying, bytes_max: int) -> None:
        self.folder, self.dying, self.bytes_max = folder, dying, bytes_max
        self.number = 0
        self.begun: list[str] = []
        self.open: list[str] = []
        self.concluded: list[int] = []
        self.log: list[NodeOutcome] = []
        self.acknowledged: set[int] = set()
        self.spool = DiskSpool(folder, bytes_max)

    def step(self, action: str, choice: int, dies_after: int, fraction: float) -> None:
        self.dying.steps_left, self.dying.fraction = dies_after, fraction
        try:
            getattr(self, action)(choice)
        except Died:
            self.dying.steps_left = -1
            self.restart(choice)
        self.dying.steps_left = -1

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
        st.sampled_from([-1, -1, -1, 0, 1, 2, 3]),
        st.floats(0, 1),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps, bytes_max=st.sampled_from([40_000, 1_000_000]))
def test_every_intent_ends_in_exactly_one_conclusion_delivered_in_order(steps, bytes_max) -> None:
    """Whatever is done, and wherever the process dies: nothing is lost, invented, or out of order."""
    dying = Dying()
    with tempfile.TemporaryDirectory() as folder, patched(dying):
        run = Run(Path(folder), dying, bytes_max)
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


@settings(max_examples=50, deadline=None)
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


class Refusing:
    """A disk that takes nothing, or half a line, until it is mended."""

    def __init__(self) -> None:
        self.broken = False
        self._line, self._whole = spool_files.write_line, spool_files.write_whole

    def write_line(self, fd: int, line: bytes) -> None:
        if self.broken:
            os.write(fd, line[:7])
            raise OSError(28, "No space left on device")
        self._line(fd, line)

    def write_whole(self, path: Path, content: bytes) -> None:
        if self.broken:
            raise OSError(30, "Read-only file system")
        self._whole(path, content)


@settings(max_examples=100, deadline=None)
@given(broken=st.lists(st.booleans(), min_size=1, max_size=60), send=st.sets(st.integers(0, 59)))
def test_disk_that_refuses_stops_no_act(broken, send) -> None:
    """A full or read-only disk is counted; outcomes wait in memory and go out in order."""
    disk = Refusing()
    with tempfile.TemporaryDirectory() as folder, patched(disk):
        spool = DiskSpool(Path(folder))
        sent: list[NodeOutcome] = []
        for number, disk.broken in enumerate(broken):
            spool.intend(outcome(number))
            spool.conclude(outcome(number))
            if number in send:
                sent += drained(spool)
        sent += drained(spool)
        spool.close()
        assert (spool.failures > 0) == any(broken)

    assert [one.seq for one in sent] == list(range(len(broken)))


def test_memory_is_bounded_while_the_disk_refuses(tmp_path: Path) -> None:
    """Beyond a thousand outcomes the rest is counted, and the count survives."""
    disk = Refusing()
    disk.broken = True
    with patched(disk):
        spool = DiskSpool(tmp_path)
        for number in range(3_000):
            spool.conclude(outcome(number))
        sent = drained(spool)

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


def test_garbage_in_the_folder_is_skipped_and_counted(tmp_path: Path) -> None:
    """Lines and files that nobody can read cost nothing but a count."""
    spool = DiskSpool(tmp_path)
    spool.conclude(outcome(1))
    spool.conclude(outcome(2))
    spool.close()
    segment = next(tmp_path.glob("0*.jsonl"))
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[1] + b'{"at": -1}\n\xff\xfe\n[]\n' + lines[2][:-9])
    (tmp_path / "intents.jsonl").write_bytes(b"not json\n{")
    (tmp_path / "gap.json").write_bytes(b"{")
    again = DiskSpool(tmp_path)

    assert [one.seq for one in drained(again)] == [1]
    assert again.torn >= 5
    again.close()


def test_long_outage_is_kept_on_disk_and_little_in_memory(tmp_path: Path) -> None:
    """Thousands of outcomes wait on disk; the window in memory stays small; files go as they are acknowledged."""
    spool = DiskSpool(tmp_path)
    for number in range(5_000):
        spool.conclude(outcome(number))
    files = len(list(tmp_path.glob("0*.jsonl")))

    assert len(spool._window) <= spools.WINDOW
    assert spool.waiting == 5_000
    assert files > 1
    assert [one.seq for one in drained(spool)] == list(range(5_000))
    assert spool.waiting == 0
    spool.conclude(outcome(5_000))
    assert len(list(tmp_path.glob("0*.jsonl"))) == 1
    spool.close()


def test_quiet_life_writes_one_file(tmp_path: Path) -> None:
    """An outcome a second, each acknowledged, makes no new file a second."""
    spool = DiskSpool(tmp_path)
    for number in range(200):
        spool.intend(outcome(number))
        spool.conclude(outcome(number))
        drained(spool)

    assert [path.name for path in tmp_path.glob("0*.jsonl")] == ["000000000001.jsonl"]
    assert (tmp_path / "intents.jsonl").read_bytes() == b""
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
    sizes = []
    for number in range(1, 1_000):
        spool.intend(outcome(number))
        spool.conclude(outcome(number))
        sizes.append((tmp_path / "intents.jsonl").stat().st_size)
    spool.close()

    assert max(sizes) < 600 * len(spools._encoder.encode(outcome(1_000, pod=JOB)))
    assert [one.seq for one in DiskSpool(tmp_path).interrupted()] == [0]
