"""Advice: the demand model, ranges, the knee, and what was foretold held against virtual nodes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.replay import advice as report
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.streams.analysis.advise.advice import Advice, Tag, advise, grid
from slacktide.streams.analysis.advise.demand import Demand, share_over, share_used
from slacktide.streams.analysis.advise.trials import BLOCK_MS, NodeTrial, Tally, Tried
from slacktide.streams.analysis.replay.lines import REPLAYED, Header, end_line, head_line, line_of
from testbed.colocated import calibrate, policy, run
from testbed.samples import START_MS, policy_record
from testbed.snapshots import command_text, stable
from testbed.vectors import each_row

HOUR_MS = 3_600_000


def test_demand_that_was_seen_is_what_is_foretold() -> None:
    """Half of the time pods want 20% of the node, half of the time 40%; a limit at 10% held them back."""
    demand = Demand(shown={20: 1_000, 40: 1_000}, censored={10: 5_000})

    assert share_used(demand, {(10, 30): 1_000}) == pytest.approx((10 + 10 / 2) / 20)


def test_demand_beyond_what_was_seen_counts_as_unlimited() -> None:
    """Always held back: nothing bounds what they would have used but the limit."""
    assert share_used(Demand(censored={10: 5_000}), {(10, 90): 1_000}) == pytest.approx(1.0)


def test_a_line_is_passed_as_often_as_demand_passes_it() -> None:
    """The same demand: in half of the time it is more than 30%."""
    demand = Demand(shown={20: 1_000, 40: 1_000}, censored={10: 5_000})

    assert share_over(demand, {(10, 30): 1_000}) == pytest.approx(0.5)
    assert share_over(demand, {}) == 1


@given(
    st.dictionaries(st.integers(0, 100), st.integers(1, 10**6)),
    st.dictionaries(st.integers(0, 100), st.integers(1, 10**6)),
    st.dictionaries(st.tuples(st.integers(0, 50), st.integers(50, 100)), st.integers(1, 10**6)),
)
def test_a_share_is_a_share(shown: dict, censored: dict, raises: dict) -> None:
    assert 0 <= share_used(Demand(shown=shown, censored=censored), raises) <= 1
    assert 0 <= share_over(Demand(shown=shown, censored=censored), raises) <= 1


def tried(*policies: tuple[float, float, int], nodes: int = 3, blocks: int = 12) -> Tried:
    """Core-hours, share over the line and evictions of each policy, spread evenly over nodes and blocks."""
    cells = nodes * blocks
    trials = []
    for core_h, over, evictions in policies:
        tally = Tally(
            covered_ms=BLOCK_MS,
            be_low=core_h * HOUR_MS * 1_000 / cells,
            be_high=core_h * HOUR_MS * 1_000 / cells,
            over_low_ms=round(over * BLOCK_MS),
            over_high_ms=round(over * BLOCK_MS),
            evictions=evictions,
        )
        trials.append({f"node-{at}": NodeTrial(blocks=dict.fromkeys(range(blocks), tally)) for at in range(nodes)})
    return Tried(
        since_ms=START_MS, until_ms=START_MS + blocks * BLOCK_MS, samples=1, undecided=0, trials=trials, demand={}
    )


def advice(*policies: tuple[float, float, int]) -> Advice:
    return advise(tried(policies[0], *policies), [Tag(policy_version=str(at)) for at in range(len(policies))], 90)


def test_the_knee_is_where_gain_runs_ahead_of_risk_most() -> None:
    found = advice((10, 0.00, 0), (18, 0.01, 0), (19, 0.10, 0), (21, 0.50, 0))

    assert [one.knee for one in found.choices] == [False, True, False, False]
    assert found.choices[1].knee_draws_pct == 100, "each block is as the others: every draw agrees"
    assert found.choices[1].be_core_h.estimate == pytest.approx(18)


@each_row("policies")
def test_without_a_bend_there_is_no_knee(policies: list[tuple[float, float, int]]) -> None:
    assert not any(one.knee for one in advice(*policies).choices)


def test_no_eviction_seen_is_no_proof_of_none() -> None:
    """A Poisson count of 0 leaves room for some three."""
    found = advice((10, 0.0, 0)).choices[0].evictions

    assert (found.low, found.estimate, round(found.high, 1)) == (0, 0, 3.7)


def test_a_grid_varies_two_thresholds() -> None:
    base = policy(65, 70)
    threshold = replace(base.resource_threshold, mem_evict_lower_pct=66, cpu_suppress_signal="pressure")
    base = replace(base, resource_threshold=threshold)
    found = grid(base, (75, 55), (80,))

    assert [(tag.cpu_suppress_threshold_pct, tag.mem_evict_threshold_pct) for tag, _ in found] == [(55, 80), (75, 80)]
    assert {one.resource_threshold.mem_evict_lower_pct for _, one in found} == {76}
    assert {one.resource_threshold.cpu_suppress_signal for _, one in found} == {"usage"}, (
        "or CPU thresholds have no effect"
    )
    assert grid(DEFAULT, (), ())[0][1].resource_threshold.enable, "or there would be nothing to compare"


@pytest.mark.parametrize(
    ("recorded", "other"),
    [
        pytest.param(policy(65, 70), policy(80, 67), id="looser CPU"),
        pytest.param(policy(65, 70), policy(55, 75), id="looser memory"),
        pytest.param(policy(65, 95, 45), policy(60, 95, 45), id="evictions by CPU"),
    ],
)
def test_what_is_foretold_comes_true_on_virtual_nodes(recorded: Policy, other: Policy) -> None:
    """The short form of ``make bench ARGS="--only advise"``, whose bounds are closer: it has more evictions."""
    found = calibrate(recorded, other, range(4), steps=300)
    foretold = sum(one.choice.evictions.estimate for one in found)
    acted = sum(one.evictions for one in found)
    hours = sum(one.choice.be_core_h.estimate for one in found), sum(one.core_h for one in found)

    assert all(one.inside for one in found)
    assert hours[0] == pytest.approx(hours[1], rel=0.1)
    assert foretold == pytest.approx(acted, abs=4 * acted**0.5)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes and ten minutes, as `slacktide topics export` writes them."""
    recorded = policy(65, 70)
    _, log = run(recorded, [(1, 0), (1, 1)], 300)
    file = tmp_path_factory.mktemp("advise") / "day.jsonl"
    records = [replace(policy_record(recorded), timestamp_ms=START_MS - 1), *log]
    header = Header(since_ms=START_MS, until_ms=log[-1].timestamp_ms + 1, topics=REPLAYED)
    file.write_bytes(b"".join([head_line(header), *map(line_of, records), end_line(len(records))]))
    return file


def asked(*arguments: str | Path, exit_code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["advise", "--jobs", "1", *map(str, arguments)])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_a_recorded_day_gives_a_table_a_picture_and_a_knee(day: Path, tmp_path: Path) -> None:
    """The recorded policy, tried again, gives what was recorded."""
    text = asked(day, "--suppress", "55,65,75", "--svg", tmp_path / "advice.svg")
    found = json.loads(asked(day, "--suppress", "55,65,75", "-o", "json"))
    strict, same, loose = found["choices"]

    assert same["be_core_h"] == found["recorded"]["be_core_h"]
    assert same["evictions"] == found["recorded"]["evictions"]
    assert strict["be_core_h"]["estimate"] < same["be_core_h"]["estimate"] < loose["be_core_h"]["estimate"]
    assert strict["over_line_pct"]["estimate"] <= loose["over_line_pct"]["estimate"]
    assert "a  " in text
    assert "recorded" in text
    assert ("Knee: " in text) == any(one["knee"] for one in found["choices"])
    assert "or risk rises as fast" in text or "<- knee" in text
    svg = (tmp_path / "advice.svg").read_text()
    assert svg.startswith("<svg xmlns=")
    assert svg.count("<circle") == 4


def test_a_grid_may_stand_in_a_file(day: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text("cpuSuppressThresholdPercent: [60, 70]\nmemoryEvictThresholdPercent: [75]\n")
    found = json.loads(asked(day, "--grid", tmp_path / "grid.yaml", "-o", "json"))

    assert [one["cpu_suppress_threshold_pct"] for one in found["choices"]] == [60, 70]
    assert {one["mem_evict_threshold_pct"] for one in found["choices"]} == {75}


@each_row("arguments")
def test_bad_input_names_what_is_accepted(day: Path, arguments: str, snapshot) -> None:
    done = CliRunner().invoke(cli, ["advise", "--jobs", "1", str(day), *arguments.split()])
    assert command_text(done, day.parent) == snapshot


@pytest.mark.parametrize(
    "text", ["[]", "cpuSuppress: [60]", "cpuSuppressThresholdPercent: 60", "cpuSuppressThresholdPercent: [true]"]
)
def test_a_grid_file_that_is_none_names_its_field(day: Path, tmp_path: Path, text: str, snapshot) -> None:
    (tmp_path / "grid.yaml").write_text(text)
    assert stable(asked(day, "--grid", tmp_path / "grid.yaml", exit_code=1), tmp_path) == snapshot


def test_a_log_without_samples_is_an_error_that_names_the_topics(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    header = Header(since_ms=START_MS, until_ms=START_MS + 1_000, topics=REPLAYED)
    file.write_bytes(head_line(header) + end_line(0))

    assert "the export contains the topics policy and node.sample" in asked(file, exit_code=1)


def test_many_policies_have_two_letters() -> None:
    found = advice(*[(10 + at, at / 100, 0) for at in range(30)])

    assert "ad " in report.text(found)
