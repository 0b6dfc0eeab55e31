"""What the parts of a run share: brokers, a folder, progress on stderr. All gone when it ends, however it ends."""

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import psutil

from bench.counting import Counting
from testbed import rungs
from testbed.brokers import EmbeddedBroker, KafkaBroker, running


class CannotRunError(Exception):
    """A part could not run; the text says why."""


def _kafka(folder: Path) -> KafkaBroker:
    """As the tests have it, but what a topic may not keep goes soon: a large fleet writes 30 MB a second."""
    broker = KafkaBroker(folder)
    with (folder / "server.properties").open("a") as settings:
        settings.write("log.retention.check.interval.ms=5000\n")
    return broker


class Rig:
    """One run of the bench."""

    def __init__(
        self,
        *,
        virtual: bool,
        brief: bool = False,
        minutes: float = 10.0,
        nodes: int = 0,
        each_s: float = 1.0,
        records: Path | None = None,
        against: Path | None = None,
    ) -> None:
        self.virtual = virtual
        """Virtual nodes although real ones could be had."""
        self.brief = brief
        """The parts about throughput and fleets are small: they show that they work, and figures that mean little."""
        self.minutes = minutes
        """How long the large fleet or the frontier runs."""
        self.nodes = nodes
        """Of the cluster; 0: as many as its targets are for."""
        self.each_s = each_s
        """How often each of them reports."""
        self.records = records
        """Where the frontier's phases are kept; none: until the run ends."""
        self.against = None if against is None else against.resolve()
        """Another checkout, whose parts run at the same time."""
        self._stack = contextlib.ExitStack()
        self._kafka: KafkaBroker | None = None
        self._started_s = time.monotonic()

    def __enter__(self) -> Self:
        self.folder = self._folder(None)
        # What stands in for the kernel's files is in memory, as theirs are; a spool belongs on a disk.
        self.memory = self._folder("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _folder(self, place: str | None) -> Path:
        made = tempfile.TemporaryDirectory(prefix="slacktide-bench-", dir=place)
        return Path(self._stack.enter_context(made))

    def say(self, text: str) -> None:
        """One line of progress."""
        sys.stderr.write(f"[{time.monotonic() - self._started_s:5.0f} s] {text}\n")
        sys.stderr.flush()

    def kafka(self) -> KafkaBroker:
        """Apache Kafka with empty topics: one process for all parts.

        Raises:
            CannotRunError: this machine lacks it.

        """
        if (lack := rungs.lacks_kafka()) is not None:
            raise CannotRunError(f"lacks {lack}")
        if self._kafka is None:
            self.say("starting Apache Kafka")
            self._kafka = self._stack.enter_context(running(_kafka))
        elif not self._kafka.running:
            self._kafka.start()
        self._kafka.forget()
        self._kafka.apply_topics()
        Counting.begin_anew()
        return self._kafka

    @contextlib.contextmanager
    def embedded(self):
        """An embedded broker with topics."""
        with running(EmbeddedBroker) as broker:
            broker.apply_topics()
            yield broker

    def conditions(self) -> dict[str, float | int]:
        """What else this machine does, seen for a second: parts of all its CPU time."""
        before = psutil.cpu_times()
        time.sleep(1.0)
        after = psutil.cpu_times()
        spent = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
        whole = sum(spent[name] for name in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"))
        return {
            "cpus": psutil.cpu_count() or 1,
            "load_1m": round(psutil.getloadavg()[0], 2),
            "busy_pct": round(100 * (1 - (spent["idle"] + spent["iowait"]) / whole), 1),
            "steal_pct": round(100 * spent["steal"] / whole, 1),
        }


def wait(seconds: float, *alive) -> None:
    """Let time pass while processes run.

    Raises:
        CannotRunError: one of them ended.

    """
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        for process in alive:
            process.check()
        time.sleep(min(0.25, left_s))
