"""The bench's statistics: growth, holes, gaps, what came back when."""

from pathlib import Path

import msgspec
import pytest
from bench.covered import Covered
from bench.crowd import Watched, age_ms, next_size
from bench.meter import Cost
from bench.peers.measure import _rows
from bench.takeover import (
    Answer,
    Figures,
    InColumns,
    Sampled,
    Story,
    Window,
    gaps_ms,
    lost_samples,
    rows,
    whole_again_ms,
)
from bench.trend import back_at, missing, slope
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas import topics
from slacktide.schemas.outcome import NodeOutcome
from testbed import chains
from testbed.snapshots import situations
from testbed.vectors import each_row

KILLED_MS = 100_000


@given(st.floats(-1e3, 1e3), st.floats(-1e6, 1e6), st.integers(2, 50))
def test_slope_finds_a_straight_line_again(growth: float, begin: float, count: int) -> None:
    """Whatever it begins at."""
    points = [(float(x), begin + growth * x) for x in range(count)]

    assert slope(points) == pytest.approx(growth, abs=1e-6)


def test_slope_of_one_point_is_none() -> None:
    """Nothing grows at an instant."""
    assert slope([(1.0, 5.0)]) == slope([]) == slope([(1.0, 2.0), (1.0, 8.0)]) == 0.0


@given(st.sets(st.integers(0, 200), min_size=2))
def test_missing_counts_holes(numbers: set[int]) -> None:
    """In any order, repeated or not."""
    seen = [*numbers, *sorted(numbers, reverse=True)]

    assert missing(seen) == len(set(range(min(numbers), max(numbers))) - numbers)


@each_row("points", "at")
def test_a_window_is_back_once_it_stays_at_its_level(points: list[tuple[int, int]], at: int | None) -> None:
    """A figure that is right for a moment only is not whole."""
    assert back_at(points, 60, 100) == at


def test_samples_cover_what_they_tell_of_once() -> None:
    """A window that goes on by steps of a second reaches back from the end of the one that has begun."""
    covered = Covered([(10_000, 0), (12_500, 1_000), (13_200, 1_000), (12_900, 500), (20_000, 1_000)])

    assert covered.within_ms(13_200, 10_000, 1_000) == 1_700
    assert covered.within_ms(13_200, 2_000, 1_000) == 1_200
    assert covered.within_ms(20_000, 5_000, 1_000) == covered.within_ms(25_000, 6_000, 1_000) == 1_000


def watched(nodes: int, growth: float, sent: float) -> Watched:
    """A run of ten seconds."""
    seconds = [float(second) for second in range(10)]
    return Watched(
        nodes=nodes,
        sent=[(at_s, sent * at_s) for at_s in seconds],
        lag=[(at_s, 50 + growth * at_s) for at_s in seconds],
    )


@each_row("growth", "sent", "flat")
def test_lag_is_flat_where_a_worker_keeps_up_with_all_nodes(growth: float, sent: float, flat: bool) -> None:  # noqa: FBT001
    """Of 1,000 nodes at 1 Hz."""
    assert watched(1_000, growth, sent).flat is flat


def test_trials_go_down_by_what_was_answered_until_one_is_flat_and_halfway_up_again() -> None:
    """In whole hundreds."""
    all_failed = [watched(10_000, 7_500.0, 10_000.0)]
    assert next_size(all_failed) == 2_200
    assert next_size([watched(10_000, 0.0, 5_000.0)]) == 4_500, "generators too slow"
    flat = watched(2_200, 0.0, 2_200.0)
    assert next_size([*all_failed, flat]) == 6_100
    assert next_size([*all_failed, flat, watched(6_100, 3_000.0, 6_100.0)]) == 4_100
    assert next_size([watched(6_100, 3_000.0, 6_100.0), watched(5_000, 0.0, 5_000.0)]) is None, "close enough"
    assert next_size([watched(200, 190.0, 200.0)]) == 100
    assert next_size([watched(100, 90.0, 100.0)]) is None, "fewer prove nothing"
    assert next_size([watched(10_000, 0.0, 10_000.0)]) is None, "all that was wanted"


def sample(node: str, seq: int) -> Sampled:
    """One of a node's, ten seconds after the one before it."""
    return Sampled(node=node, boot_id="boot", seq=seq, observed_ms=seq * 10_000, interval_ms=10_000)


def answer(node: str, seq: int, worker: str) -> Answer:
    """To that sample."""
    return Answer(node=node, boot_id="boot", seq=seq, worker=worker)


def figures(node: str, seq: int, covered_ms: int) -> Figures:
    """By that sample, with one longer window, which lacks nothing."""
    return Figures(
        node=node,
        observed_ms=seq * 10_000,
        window_ms=60_000,
        covered_ms=covered_ms,
        aggregates=[Window(window_ms=300_000, covered_ms=seq * 10_000)],
    )


def outcome(origin: str, age_ms: int, command_id: str) -> NodeOutcome:
    """After the kill."""
    return chains.outcome(
        origin=origin, age_ms=age_ms, command_id=command_id, observed_ms=KILLED_MS + 500,
        acted_ms=KILLED_MS + 500 + age_ms,
    )  # fmt: skip


def story(**changes: object) -> Story:
    """Blue answered a and dies, green answered b all the time."""
    told = {
        "killed_ms": KILLED_MS,
        "dead": "blue",
        "samples": [sample("a", 1), sample("a", 2), sample("b", 1)],
        "answers": [
            (KILLED_MS - 500, answer("a", 1, "blue")),
            (KILLED_MS + 100, answer("b", 1, "green")),
            (KILLED_MS + 6_500, answer("a", 2, "green")),
        ],
        "metrics": [
            (KILLED_MS - 500, figures("a", 1, 10_000)),
            (KILLED_MS - 400, figures("b", 1, 10_000)),
            (KILLED_MS + 6_500, figures("a", 2, 19_999)),
            (KILLED_MS + 8_000, figures("a", 2, 20_000)),
        ],
        "outcomes": [outcome("guard", 1_050, "x")],
    }
    return Story(**{**told, **changes})


def test_a_takeover_without_loss_meets_its_targets() -> None:
    """All samples answered, the guard in time, windows whole 2 s after the session timeout."""
    assert gaps_ms(story()) == [7_000]
    assert whole_again_ms(story()) == {"a": KILLED_MS + 8_000}


@situations(
    "given",
    {
        "all as it should be": ({}, []),
        "a sample that lacks in the log": ({"samples": [sample("a", 1), sample("a", 3)]}, [0]),
        "a sample without an answer": ({"answers": story().answers[:2]}, [0]),
        "the guard came late": ({"outcomes": [outcome("guard", 1_700, "x")]}, [1]),
        "no guard was needed: nothing was shown": ({"outcomes": [outcome("stream", 30, "x")]}, [1]),
        "applied twice": ({"outcomes": [outcome("guard", 20, "x"), outcome("stream", 30, "x")]}, [1]),
        "a window that does not come back": ({"metrics": story().metrics[:3]}, [2]),
        "a window of which nothing is heard any more": ({"metrics": story().metrics[:2]}, [2]),
    },
)
def test_what_is_over_its_target(given: tuple[dict[str, object], list[int]]) -> None:
    """Of lost and unanswered, gap and windows; the fourth row has no target."""
    changes, over = given
    verdicts = [row.verdict for row in rows(story(**changes), 1_000)]
    assert verdicts[3] == "info"
    assert [at for at, verdict in enumerate(verdicts[:3]) if verdict == "over"] == over
    assert set(verdicts[:3]) <= {"ok", "over"}


def test_a_sample_that_lacks_in_the_log_is_lost() -> None:
    """Of one boot, between its first and last."""
    assert lost_samples([sample("a", 1), sample("a", 4), sample("b", 9)]) == 2


def test_a_takeover_reads_of_the_log_what_it_needs() -> None:
    """Records as they are written; what else is in them is left."""
    examples = Path(topics.__file__).parent / "examples"
    kinds = {topics.SAMPLE: InColumns, topics.COMMAND: Answer, topics.METRIC: Figures}

    for topic, kind in kinds.items():
        for file in sorted((examples / topic.name).glob("*.json")):
            read = msgspec.json.decode(file.read_bytes(), type=kind)
            assert (read.of if kind is InColumns else read).node


def test_an_answers_age_is_that_of_its_sample() -> None:
    """The first time in a body is the sample's own."""
    assert age_ms(5_250, b'{"node":"a","observed_ms":5000,"aggregates":[{"observed_ms":1}]}') == 250


def test_ratios_are_those_of_the_medians() -> None:
    """One bad run of a peer makes no ratio."""

    def runs(*rates: float) -> list[Cost]:
        return [Cost(records=round(rate * 10), cpu_s=10.0, wall_s=10.0, rss_mb=100.0) for rate in rates]

    told = _rows(
        {
            "slacktide": runs(30_000, 29_000, 10_000),
            "slacktide, default": runs(20_000, 19_000, 18_000),
            "slacktide, rows": runs(4_000, 5_000, 4_500),
            "faust, rows": runs(1_000, 1_200, 50),
            "streams, rows": runs(22_000, 23_000, 21_000),
            "aiokafka, rows": runs(18_000, 18_000, 18_000),
            "faust, columns": runs(2_000, 2_200, 1_800),
            "streams, columns": runs(58_000, 58_000, 58_000),
            "aiokafka, columns": runs(29_000, 28_000, 30_000),
        }
    )

    assert [row.verdict for row in told[:3]] == ["ok", "ok", "ok"]
    assert told[1].values["ratio"] == pytest.approx(29.0)
    assert told[2].values["ratio"] == pytest.approx(29_000 / 22_000)
    assert [row.values["ratio"] for row in told[3:5]] == pytest.approx([14.5, 0.5]), "on columns"
    assert {row.verdict for row in told[3:]} == {"info"}
