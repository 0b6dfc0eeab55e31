"""A day from one seed: hours of random faults break no promise, three by day and 24 at night.

``SLACKTIDE_SEED=123 pytest -s tests/sim/test_day.py`` replays one. What it costs is told in ``sim.day``.
"""

import os

import pytest

from sim.day import FAULTS, HOUR_MS, Day
from slacktide.schemas.codec import decode
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import DEAD_LETTER, OUTCOME
from testbed.rungs import NIGHTLY

SEED = int(os.environ.get("SLACKTIDE_SEED", "3"))
HOURS = 24 if NIGHTLY else 3


@pytest.mark.parametrize("seed", [SEED], ids="seed {}".format)
def test_no_fault_of_a_day_breaks_a_promise(seed: int) -> None:
    """Every act once and only on best-effort, paid for and within budget; the guard covers every gap; all is answered.

    The checks complain by themselves; what is asserted is that the day was a day.
    """
    day = Day(seed, hours=HOURS).run()

    outcomes = [decode(entry.value, NodeOutcome) for entry in day.log.ever[OUTCOME.name]]
    assert day.timeline.now_ms >= HOURS * HOUR_MS
    assert day.faults >= FAULTS * HOURS // 24
    assert day.checker.evicted
    assert day.log.incarnation, "the log was made anew"
    assert day.log.ever[DEAD_LETTER.name], "records that nobody can use came along"
    assert {"stream", "guard"} <= {outcome.origin for outcome in outcomes}
    assert day.nodes[0].clock.wall_off_ms, "its clock is wrong"


def test_a_seed_gives_the_same_day_again() -> None:
    """A quarter of an hour of it is proof enough."""
    assert _quarter(3) == _quarter(3)


def _quarter(seed: int) -> str:
    return Day(seed, hours=1 / 4).run().trace.fingerprint()
