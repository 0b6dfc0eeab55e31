"""When a sample may be taken before its tick: apart from others, and seldom where it comes to nothing."""

import itertools

import msgspec
import pytest

from slacktide.agents.node.ahead.ahead import APART_NS, CALM_NS, PAUSE_NS_MAX, Early, took_back
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.sample import Limits

MS = 1_000_000
SECOND = 1_000 * MS


@pytest.mark.parametrize(
    ("at_ms", "taken_ms"),
    [
        pytest.param(500, 500, id="at once"),
        pytest.param(1, 210, id="a fifth of a second after the last sample, if that is still to come"),
        pytest.param(210, 210, id="just far enough from the last"),
    ],
)
def test_an_early_sample_keeps_apart_from_the_last(at_ms: int, taken_ms: int) -> None:
    """Over less than that a rate would be the counters' own coarseness."""
    assert Early().asked(at_ms * MS, last_ns=0) == taken_ms * MS


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


def in_vain(pace: Early, times: int) -> None:
    """Early samples as close as can be that changed nothing, the first at 0 with seq 7."""
    for turn in range(times):
        pace.asked(turn * APART_NS, last_ns=-SECOND)
        pace.took(turn * APART_NS, 7 + turn)


def test_what_was_silent_for_a_while_is_news() -> None:
    pace = Early()
    in_vain(pace, times=2)

    assert pace.asked(3 * APART_NS - MS, last_ns=APART_NS) is None, "it has proved nothing yet"
    calm_ns = 3 * APART_NS + CALM_NS
    assert pace.asked(calm_ns, last_ns=APART_NS) == calm_ns


def test_the_first_in_vain_is_followed_at_once() -> None:
    """Most of its rate may be of before the rise; the next sample sees it whole."""
    pace = Early()
    in_vain(pace, times=1)

    assert pace.asked(APART_NS // 2, last_ns=0) == APART_NS


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(("cut", "took"), id="before the sample is told"),
        pytest.param(("took", "cut"), id="after it"),
    ],
)
def test_a_cut_by_the_early_sample_counts_however_soon_it_is_told(calls: tuple[str, str]) -> None:
    """The guard acts while the sample is still being taken, the stream when its answer comes."""
    pace = Early()
    in_vain(pace, times=1)
    pace.asked(APART_NS, last_ns=0)
    for call in calls:
        if call == "took":
            pace.took(APART_NS, 8)
        else:
            pace.cut(8)

    assert pace.asked(2 * APART_NS, last_ns=APART_NS) == 2 * APART_NS


def test_a_cut_by_a_tick_is_no_merit_of_the_early_sample() -> None:
    pace = Early()
    in_vain(pace, times=2)
    pace.cut(9)

    assert pace.asked(2 * APART_NS, last_ns=APART_NS) is None


OUTCOME = NodeOutcome(
    node="node-1",
    boot_id="000000000001-00000000",
    seq=7,
    command_id="0",
    rule="cpu_suppress",
    target="besteffort",
    origin="stream",
    result="applied",
    policy_version="p",
    observed_ms=0,
    acted_ms=0,
    age_ms=0,
)
MUCH, LITTLE = Limits(be_cfs_quota_us=100_000), Limits(be_cfs_quota_us=50_000)


@pytest.mark.parametrize(
    ("more", "did"),
    [
        pytest.param({"before": MUCH, "after": LITTLE}, True, id="a cut"),
        pytest.param({"before": LITTLE, "after": MUCH}, False, id="a raise"),
        pytest.param({"before": MUCH, "after": LITTLE, "result": "dry-run"}, False, id="a cut that was not made"),
        pytest.param({"rule": "memory_evict", "spent": Spent(evictions=1)}, True, id="an eviction"),
        pytest.param({"rule": "cpu_burst"}, False, id="another setting"),
    ],
)
def test_what_an_early_sample_is_for(more: dict, did: object) -> None:
    assert took_back(msgspec.structs.replace(OUTCOME, **more)) is did
