"""Runs a plan over a trace. A long trace is divided over processes by partition: partitions are independent."""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Queue
from threading import Thread
from typing import Any

import click
import msgspec

from slacktide.deploy.cli.replay import source
from slacktide.deploy.cli.suggestions import NotFoundError, near
from slacktide.deploy.runtime import garbage
from slacktide.deploy.runtime.text import instant
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.analysis.advise.trials import Trials, Tried
from slacktide.streams.analysis.replay.lines import REPLAYED
from slacktide.streams.analysis.replay.policies import Policies, Proven
from slacktide.streams.analysis.replay.replay import Replay, Result
from slacktide.streams.analysis.replay.whatif import Change, WhatIf
from slacktide.streams.records import Record, text_of
from slacktide.streams.taken import Records, Taken

FEW = 10_000
"""A shorter trace is done before other processes have started."""
AHEAD = 32
"""Parcels read ahead for a process, which takes none while it decides a turn."""
_Parcel = tuple[list[str], list[int], list[int], list[int], list[bytes | None], list[bytes | None]]
"""Records in columns, without headers: topics, partitions, offsets, times, keys and values."""
_packed = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder(_Parcel).decode


class ReplayError(SlacktideError):
    """A process of the replay ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work of each process."""

    policies: Sequence[Record]
    since_ms: int
    nodes: tuple[str, ...] = ()
    kept: int = 10
    """Limit for listed differences."""
    other: Policy | None = None
    """The policy of a what-if run, evaluated in addition to the recorded one."""
    grid: tuple[Policy, ...] = ()
    """The policies that advise tries."""
    line_pct: float = 100.0
    """The node use above which latency-sensitive pods are at risk, for ``grid``."""


class _Run:
    """Runs a trace without samples that failed the node proof."""

    def __init__(self, plan: Plan) -> None:
        policies, since_ms, nodes = Policies(plan.policies), plan.since_ms, plan.nodes
        self._run: Replay | WhatIf | Trials
        if plan.grid:
            self._run = Trials(policies, plan.grid, line_pct=plan.line_pct, since_ms=since_ms, nodes=nodes)
        elif plan.other is None:
            self._run = Replay(policies, since_ms=since_ms, nodes=nodes, kept=plan.kept)
        else:
            self._run = WhatIf(policies, plan.other, since_ms=since_ms, nodes=nodes)
        self._proven = Proven(plan.policies, self._run.take)
        self.take = self._proven.take_all

    def finish(self) -> Result | Change | Tried:
        """End the run."""
        self._proven.finish()
        return msgspec.structs.replace(self._run.finish(), unproven=self._proven.dropped)


class Jobs:
    """Processes a trace, in several processes if it is long."""

    def __init__(self, plan: Plan, count: int, few: int = FEW, *, forks: bool = False) -> None:
        """Use at most ``count`` processes, and one for a trace of up to ``few`` records.

        With ``forks`` they begin as copies of this one, which saves the start of Python. They would share a connection
        to Kafka.
        """
        self._plan, self._count, self._few = plan, count, few
        self._begun = "fork" if forks else "spawn"
        self._first: list[Records] = []
        self._jobs: list[_Job] = []
        self._alone = _Run(plan) if count == 1 else None

    def take(self, some: Sequence[Record]) -> None:
        """Add the next records. Raises ReplayError if a process ended."""
        if self._alone is not None:
            self._alone.take(some)
        elif self._jobs:
            self._share(Records.of(some))
        else:
            self._first.append(Records.of(some))
            if sum(map(len, self._first)) > self._few:
                self._jobs = [_Job(self._plan, self._begun) for _ in range(self._count)]
                for job in self._jobs:
                    job.begin()
                for one in self._first:
                    self._share(one)

    def _share(self, some: Records) -> None:
        whose = [partition % self._count for partition in some.partitions]
        for number, job in enumerate(self._jobs):
            job.take(some.chosen([one == number for one in whose]))

    def finish(self) -> Result | Change | Tried:
        """End the run. Raises ReplayError if a process ended."""
        if not self._jobs:
            alone = self._alone or _Run(self._plan)
            for some in self._first:
                alone.take(some)
            return alone.finish()
        for job in self._jobs:
            job.end()
        found = [job.result() for job in self._jobs]
        if results := [one for one in found if isinstance(one, Result)]:
            return Result.of(results, self._plan.kept)
        if changes := [one for one in found if isinstance(one, Change)]:
            return Change.of(changes)
        return Tried.of([one for one in found if isinstance(one, Tried)])


class _Job:
    """One process, from the parent's side."""

    def __init__(self, plan: Plan, begun: str) -> None:
        context: Any = multiprocessing.get_context(begun)
        self._end, its_end = context.Pipe()
        self._process = context.Process(target=_work, args=(plan, its_end), daemon=True)
        self._process.start()
        its_end.close()
        self._parcels: Queue[bytes] = Queue(AHEAD)
        self._broken = False
        self._sender = Thread(target=self._send, daemon=True)

    def begin(self) -> None:
        """Begin to send, after all processes were begun: a fork should find one thread."""
        self._sender.start()

    def take(self, some: Records) -> None:
        columns = some.topics, some.partitions, some.offsets, some.times_ms, some.keys, some.values
        self._put(_packed(columns))

    def end(self) -> None:
        """End of input."""
        self._put(b"")

    def result(self) -> Result | Change | Tried:
        try:
            found: Result | Change | Tried = self._end.recv()
        except (EOFError, OSError) as exc:
            raise self._gone() from exc
        self._process.join()
        return found

    def _put(self, parcel: bytes) -> None:
        if self._broken:
            raise self._gone()
        self._parcels.put(parcel)

    def _send(self) -> None:
        """Send parcels until the last one, which is empty; if the process ended, drop them."""
        parcel = b"more"
        while parcel:
            parcel = self._parcels.get()
            with suppress(OSError):
                self._end.send_bytes(parcel)
                continue
            self._broken = True

    def _gone(self) -> ReplayError:
        self._process.join()
        return ReplayError(
            f"a replay process ended with exit code {self._process.exitcode}; see its output above. To decide "
            "in a single process, give --jobs 1"
        )


def _work(plan: Plan, its_end: Connection) -> None:
    """Run one part of the trace; an empty message ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the parent handles it
    garbage.seldom()
    run = _Run(plan)
    try:
        while parcel := its_end.recv_bytes():
            topics, partitions, offsets, times_ms, keys, values = _unpacked(parcel)
            taken = Taken(offsets, times_ms, keys, values, [()] * len(offsets))
            run.take(Records(list(map(sys.intern, topics)), partitions, taken))
        its_end.send(run.finish())
    except (EOFError, BrokenPipeError):
        return  # the parent ended


def decided(
    where: source.Where, plan: Callable[[source.Opened], Plan], nodes: tuple[str, ...], jobs: int
) -> Result | Change | Tried:
    """Run a plan, which is built from the data known before the first record, on a trace of these nodes; empty: all.

    Raises:
        click.UsageError: the span's end precedes its start.
        NotFoundError: a node has no samples in it.
    """
    made: list[Jobs] = []
    known: set[bytes | None] = set()

    def begin(opened: source.Opened) -> source.Sink:
        if opened.since_ms >= opened.until_ms:
            raise click.UsageError(
                f"--since ({instant(opened.since_ms)}) must be earlier than the end of the span "
                f"({instant(opened.until_ms)})"
            )
        made.append(Jobs(plan(opened), jobs, forks=where.file is not None))

        def take(some: Sequence[Record]) -> None:
            known.update(record.key for record in some if record.topic == SAMPLE.name)
            made[0].take(some)

        return take if nodes else made[0].take

    source.read(where, REPLAYED, begin)
    result = made[0].finish()
    names = {text_of(key) for key in known if key is not None}
    if names and (unknown := next((node for node in nodes if node not in names), None)):
        raise NotFoundError(f"{where}: no sample in the span is from node {unknown}; {near(unknown, names)}")
    return result
