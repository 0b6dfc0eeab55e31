"""When a sample may be taken before its tick: apart from others, and seldom where it comes to nothing."""

import itertools

from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.ahead import APART_NS, PAUSE_NS_MAX, Early, took_back
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from testbed.stories import each_story, story
from testbed.vectors import changed, each_row

MS = 1_000_000
SECOND = 1_000 * MS


class Pace:
    """Early samples, by milliseconds; where they are as close as can be the first is taken at 0 with seq 7."""

    def __init__(self) -> None:
        self.early, self.allowed_ms = Early(), None

    def ask(self, at_ms: int, last_ms: int) -> None:
        allowed_ns = self.early.asked(at_ms * MS, last_ns=last_ms * MS)
        self.allowed_ms = None if allowed_ns is None else allowed_ns / MS

    def in_vain(self, times: int) -> None:
        """So many as close as can be, which changed nothing."""
        for turn in range(times):
            self.early.asked(turn * APART_NS, last_ns=-SECOND)
            self.took(turn * APART_NS // MS, 7 + turn)

    def took(self, at_ms: int, seq: int) -> None:
        self.early.took(at_ms * MS, seq)

    def state(self) -> dict[str, object]:
        return {"a sample may be taken at ms": self.allowed_ms}


@each_story("early")
def test_when_a_sample_may_be_taken_early(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Pace(), steps) == snapshot


def under_standing_pressure(seconds: int, *, useful: bool) -> list[int]:
    """Asked twice a second between ticks, by pressure that never ends; when samples were taken, in ms."""
    pace, last_ns, taken, seq = Early(), 0, [], 0
    for half in range(2 * seconds):
        now_ns = half * SECOND // 2
        if half % 2 == 0:
            last_ns, seq = now_ns, seq + 1
            continue
        if pace.asked(now_ns, last_ns=last_ns) is not None:
            taken.append(now_ns // MS)
            last_ns, seq = now_ns, seq + 1
            pace.took(now_ns, seq)
            if useful:
                pace.cut(seq)
    return taken


def test_standing_pressure_costs_ever_less() -> None:
    """The pause doubles up to half a minute: in ten minutes some twenty samples beside six hundred."""
    taken = under_standing_pressure(600, useful=False)

    pauses = [after - before for before, after in itertools.pairwise(taken)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_NS_MAX // MS
    assert len(taken) <= 600 // 32 + 9


def test_samples_that_cut_are_taken_on() -> None:
    assert len(under_standing_pressure(60, useful=True)) == 60


OUTCOME = NodeOutcome(
    node="node-1", boot_id="b", seq=7, command_id="0", rule="cpu_suppress", target="besteffort", origin="stream",
    result="applied", policy_version="p", observed_ms=0, acted_ms=0, age_ms=0,
)  # fmt: skip
MUCH, LITTLE = Limits(be_cfs_quota_us=100_000), Limits(be_cfs_quota_us=50_000)


@each_row("more", "did")
def test_what_an_early_sample_is_for(more: dict, did: object) -> None:
    assert took_back(changed(OUTCOME, more)) is did
