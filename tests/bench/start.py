"""Figures: ``slacktide up`` from exec to ready, and from there to its first applied decision."""

from __future__ import annotations

import statistics
import time

from bench.node import Node, node
from bench.process import POLL_S, Slacktide
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, seconds

STARTS = 3
READY_S, APPLIED_S = 6.0, 10.0
APPLIED_S_MAX = 40.0


def measure(rig: Rig) -> list[Row]:
    """Each start finds an unlimited best-effort group and an empty state folder."""
    found = []
    for number in range(STARTS):
        with node(rig, crunch=True) as one:
            found.append(_start(rig, number, one))
            rig.say(
                f"start {number + 1} of {STARTS}: ready in {found[-1][0]:.2f} s, applied {found[-1][1]:.2f} s after"
            )
    ready_s, applied_s = (statistics.median(column) for column in zip(*found, strict=True))
    every = ", ".join(f"{ready:.1f} + {applied:.1f}" for ready, applied in found)
    return [
        judged("slacktide up: exec -> ready", f"<= {READY_S:g} s", f"median {seconds(ready_s)} ({every})",
               met=ready_s <= READY_S, n=STARTS, all_s=[ready for ready, _ in found]),
        judged("ready -> first applied decision", f"<= {APPLIED_S:g} s", f"median {seconds(applied_s)}",
               met=applied_s <= APPLIED_S, n=STARTS, all_s=[applied for _, applied in found]),
    ]  # fmt: skip


def _start(rig: Rig, number: int, one: Node) -> tuple[float, float]:
    state = rig.folder / f"up-{number}"
    with Slacktide(rig, "up", *one.arguments, "--state-folder", str(state)) as up:
        applied_s = None
        while (ready_s := up.ready_s) is None or applied_s is None:
            up.look()
            if applied_s is None and one.quota_us() is not None:
                applied_s = time.monotonic() - up.started_s
            if time.monotonic() - up.started_s > APPLIED_S_MAX:
                raise CannotRunError(f"up: ready {ready_s}, applied {applied_s} s after exec\n{up.last_words()}")
            wait(POLL_S, up)
        return ready_s, max(0.0, applied_s - ready_s)
