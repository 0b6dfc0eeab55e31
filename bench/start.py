"""Figures: ``slacktide up`` from exec to ready, and from there to its first applied decision."""

import contextlib
import re
import socket
import statistics
import time
from dataclasses import dataclass

from bench.node import Node, node
from bench.process import POLL_S, SLACKTIDE, Running, ready
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, seconds, told
from testbed.brokers import free_port

STARTS = 3
READY_S, APPLIED_S = 6.0, 10.0
WITHIN_S = 40.0
APPLIED_BY = re.compile(r"first applied decision .* by the (\w+):")
STREAM = "by the stream"
"""In what ``up`` says of its first decisions."""
PARTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Seconds from exec."""

    ready_s: float
    applied_s: float
    """The kernel's limit was set."""
    by: str
    streamed_s: float
    """``up`` has said that the stream decided."""


def measure(rig: Rig) -> list[Row]:
    """Each start finds an unlimited best-effort group and an empty state folder."""
    found = []
    for number in range(STARTS):
        with node(rig, crunch=False) as one:
            found.append(_start(rig, number, one))
        rig.say(f"start {number + 1} of {STARTS}: {found[-1]}")
    ready_s = statistics.median(one.ready_s for one in found)
    after_s = [max(0.0, one.applied_s - one.ready_s) for one in found]
    streamed_s = statistics.median(one.streamed_s for one in found)
    each = ", ".join(f"{one.applied_s:.1f} s by the {one.by}" for one in found)
    return [
        judged("slacktide up: exec -> ready", f"<= {READY_S:g} s", f"median {seconds(ready_s)}",
               met=ready_s <= READY_S, n=STARTS, all_s=[one.ready_s for one in found]),
        judged("ready -> first applied decision", f"<= {APPLIED_S:g} s",
               f"median {seconds(statistics.median(after_s))}; after exec: {each}",
               met=statistics.median(after_s) <= APPLIED_S, n=STARTS, all_s=after_s, by=[one.by for one in found]),
        told("exec -> the stream's first decision heard", f"median {seconds(streamed_s)}", n=STARTS,
             all_s=[one.streamed_s for one in found]),
    ]  # fmt: skip


def _start(rig: Rig, number: int, one: Node) -> Started:
    port = _two_free_ports()
    command = [SLACKTIDE, "up", *one.arguments, "--policy", str(one.policy)]
    command += ["--state-folder", str(rig.folder / f"up-{number}"), "--metrics-port", str(port), "--log-format", "json"]
    with Running(rig, "up", command) as up:
        ready_s = applied_s = streamed_s = None
        while ready_s is None or applied_s is None or streamed_s is None:
            up.check()
            at_s = time.monotonic() - up.started_s
            if at_s > WITHIN_S:
                seen = f"ready {ready_s}, applied {applied_s}, by the stream {streamed_s}"
                raise CannotRunError(f"up after {WITHIN_S:g} s: {seen}\n{up.last_words()}")
            if ready_s is None and all(ready(port + part) == "" for part in range(PARTS)):
                ready_s = at_s
            if applied_s is None and one.quota_us() is not None:
                applied_s = at_s
            if streamed_s is None and STREAM in up.said():
                streamed_s = at_s
            time.sleep(POLL_S)
        by = APPLIED_BY.search(up.said())
        return Started(ready_s=ready_s, applied_s=applied_s, by=by[1] if by else "?", streamed_s=streamed_s)


def _two_free_ports() -> int:
    """The agent's; the stream has the next one."""
    while True:
        port = free_port()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port + 1))
            return port
