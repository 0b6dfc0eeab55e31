"""What ``slacktide advise`` foretells, held against virtual nodes on which the other policy then acts."""

import statistics
import time
from collections.abc import Sequence

from bench.rig import Rig
from bench.rows import Row, judged, told
from testbed.colocated import Foretold, calibrate, policy

RUNS, BRIEF_RUNS = 40, 8
BY_MEMORY = (
    policy(65, 70),
    {"looser CPU, stricter memory": policy(80, 67), "stricter CPU, looser memory": policy(55, 75)},
)
"""The recorded policy, and the others. Pods go by memory alone."""
BY_CPU = (policy(65, 95, 45), {"looser CPU": policy(70, 95, 45), "stricter CPU": policy(60, 95, 45)})
"""Pods go if they get less than 45% of the CPU that they request."""
NEW = "new loads"
INSIDE_PCT, EVICTIONS_PCT, EVICTIONS_MIN = 95, 10, 200


def measure(rig: Rig) -> list[Row]:
    """Half of the runs with each of two policies; then the same policies on loads that were not recorded."""
    runs = BRIEF_RUNS if rig.brief else RUNS
    rows = []
    for kind, (recorded, others) in {"": BY_MEMORY, ", evictions by CPU": BY_CPU}.items():
        for later in (False, True):
            begun_s, found = time.monotonic(), list[Foretold]()
            for at, (name, other) in enumerate(others.items()):
                mine = calibrate(recorded, other, range(at, runs, 2), later=later)
                rig.say(f"advise: {name}: {_evictions(mine)}")
                found += mine
            rows += judged_runs(found, (NEW if later else "the recorded loads") + kind)
            rig.say(f"advise: {runs} runs in {time.monotonic() - begun_s:.0f} s")
    return rows


def judged_runs(found: Sequence[Foretold], loads: str) -> list[Row]:
    """Three figures of all runs."""
    inside = 100 * sum(one.inside for one in found) / len(found)
    errors = [100 * (one.choice.be_core_h.estimate / one.core_h - 1) for one in found]
    widths = [100 * (one.choice.be_core_h.high - one.choice.be_core_h.low) / one.core_h for one in found]
    acted, foretold = (sum(one.evictions for one in found), sum(one.choice.evictions.estimate for one in found))
    off = 100 * (foretold / acted - 1)
    kept = 100 * sum(one.choice.evictions.low <= one.evictions <= one.choice.evictions.high for one in found)
    said = f"{off:+.1f}%: {_evictions(found)}"
    return [
        judged(
            f"core-hours inside the range, {loads}", f">= {INSIDE_PCT}%", f"{inside:.1f}%", n=len(found),
            met=inside >= INSIDE_PCT, inside_pct=inside,
        ),
        told(
            f"core-hours foretold, {loads}",
            f"estimate off by {statistics.fmean(map(abs, errors)):.1f}% on average, {max(map(abs, errors)):.1f}% at "
            f"most; range {statistics.median(widths):.0f}% wide",
            n=len(found), errors_pct=errors, widths_pct=widths,
        ),
        told(
            f"evictions inside the range, {loads}", f"{kept / len(found):.1f}%", n=len(found),
            inside_pct=kept / len(found),
        ),
        told(f"evictions foretold, {loads}", said, n=acted, off_pct=off)
        if loads.startswith(NEW)
        else judged(
            f"evictions foretold, {loads}", f"+-{EVICTIONS_PCT}%", said, n=acted,
            met=abs(off) <= EVICTIONS_PCT and acted >= EVICTIONS_MIN, off_pct=off,
        ),
    ]  # fmt: skip


def _evictions(found: Sequence[Foretold]) -> str:
    foretold = sum(one.choice.evictions.estimate for one in found)
    return f"{foretold:.0f} evictions foretold, {sum(one.evictions for one in found)} came"
