"""The demo's figures: percentiles, reactions, slowdowns, the report and its verdict."""

from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.demo.backend import Served, Used
from slacktide.deploy.demo.conditions import Condition, conditions
from slacktide.deploy.demo.figures import Ledger, Step, percentile, reactions_ms, slowdown
from slacktide.deploy.demo.report import Reaction, Report, as_json, not_closed, rows, sentences, verdict
from testbed.snapshots import cases, situations
from testbed.vectors import each_row

CASES = cases(__file__)
STEP = Step(node="n", at_ms=10_000, until_ms=12_500)


class Cut(NamedTuple):
    """The node and times of an outcome that lowered the limit."""

    node: str
    observed_ms: int
    acted_ms: int


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_one_of_the_values_and_enough_values_lie_at_or_below_it(values, pct):
    """Nearest rank: no value is made up."""
    found = percentile(values, pct)

    assert found in values
    assert sum(value <= found for value in values) >= len(values) * pct / 100 - 1e-9


def test_nothing_has_no_percentile():
    """Not measured is not zero."""
    assert percentile([], 99) is None


@each_row("cut", "reaction")
def test_what_answers_a_step(cut, reaction):
    """The sample must have seen the step, and the act must come before the next one."""
    observed_ms, acted_ms = cut

    assert reactions_ms([STEP], [Cut(node="n", observed_ms=observed_ms, acted_ms=acted_ms)]) == reaction


def test_the_first_cut_on_the_same_node_counts():
    """Other nodes' cuts and later ones do not."""
    cuts = [
        Cut(node=node, observed_ms=at, acted_ms=at + 20) for node, at in (("m", 10_100), ("n", 11_000), ("n", 10_700))
    ]

    assert reactions_ms([STEP], cuts) == [720]


def test_slowdown_is_the_ratio_of_the_medians_over_the_blocks():
    """One noisy block decides nothing, neither of the condition nor of the reference."""
    assert slowdown([30.0, 20.0, 900.0], [10.0, 10.0, 500.0]) == 3.0
    assert slowdown([30.0], []) is None
    assert slowdown([], [10.0]) is None


@situations("changes", CASES["what_the_report_says_for_people"])
def test_what_the_report_says_for_people(changes: dict[str, object], snapshot) -> None:
    """What was not measured is a dash; a loop that did not close is said in one sentence."""
    report = msgspec.convert(CASES["good"] | changes, Report)
    lines = [f"not closed: {not_closed(report)}", f"verdict: {verdict(report)}", *map(str, rows(report))]
    assert "\n".join([*lines, *(": ".join(one) for one in sentences(report))]) == snapshot


def test_scripts_read_the_report_as_json(snapshot) -> None:
    assert as_json(msgspec.convert(CASES["good"], Report)).decode() == snapshot


def window_of(ledger: Ledger, name: str, block: int, start_s: float, latencies_ms: list[float], used: Used | None):
    condition = next(c for c in conditions(15) if (c.name, c.block) == (name, block))
    window = ledger.begin(condition, start_s)
    ledger.receive(Served(start_s + 0.1, latency_ms) for latency_ms in latencies_ms)
    window.used = used
    return window


def test_a_request_belongs_to_the_window_in_which_it_was_due():
    """However late it was served; requests between windows belong to none."""
    ledger = Ledger(wall_offset_ms=0)
    condition: Condition = conditions(15)[0]
    first, second = ledger.begin(condition, 100.0), ledger.begin(condition, 110.0)

    ledger.receive([Served(104.9, 9_000.0), Served(107.0, 1.0), Served(110.0, 2.0)])

    assert (first.latencies_ms, second.latencies_ms) == ([9_000.0], [2.0])


def test_slowdowns_come_from_ended_windows_only():
    """A figure does not jump while it is being measured."""
    ledger = Ledger(wall_offset_ms=0)
    window_of(ledger, "alone", 0, 100.0, [10.0], Used(service_s=1.0, batch_s=0.0))
    running = window_of(ledger, "controlled", 0, 110.0, [15.0], None)

    assert ledger.slowdowns() == {"alone": 1.0}
    running.used = Used(service_s=1.0, batch_s=1.0)
    assert ledger.slowdowns() == {"alone": 1.0, "controlled": 1.5}


def test_steps_are_judged_when_their_time_is_over():
    """A step that can still be answered is no missed one."""
    ledger = Ledger(wall_offset_ms=1_000_000)
    ledger.expect("n", [10.0, 12.5], 15.0)
    cuts = [Cut(node="n", observed_ms=1_010_500, acted_ms=1_010_530)]

    assert ledger.reaction(cuts, now_s=13.0) == Reaction(p50=530, p99=530, n=1, steps=1)
    assert ledger.reaction(cuts, now_s=15.0).steps == 2


def test_the_p99_of_a_second_is_of_the_requests_that_were_due_in_it():
    """And known again when more of them have been served."""
    ledger = Ledger(wall_offset_ms=0)
    ledger.receive([Served(1.5, 5.0)])

    assert ledger.second_p99_ms(1_900) == 5.0
    ledger.receive([Served(1.999, 80.0)])
    assert (ledger.second_p99_ms(1_000), ledger.second_p99_ms(2_000)) == (80.0, None)
