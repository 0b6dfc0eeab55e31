"""The demo's figures: percentiles, reactions, slowdowns, the report and its verdict."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.demo.backend import Served, Used
from slacktide.deploy.demo.conditions import Condition, conditions
from slacktide.deploy.demo.figures import Step, percentile, reactions_ms, slowdown
from slacktide.deploy.demo.ledger import Ledger
from slacktide.deploy.demo.report import (
    Decided,
    Reaction,
    Report,
    Share,
    Slowdown,
    Utilization,
    as_json,
    not_closed,
    rows,
    sentences,
    verdict,
)

STEP = Step(node="n", at_ms=10_000, until_ms=12_500)


class Cut(NamedTuple):
    """The node and times of an outcome that lowered the limit."""

    node: str
    observed_ms: int
    acted_ms: int


GOOD = Report(
    mode="real",
    reaction_ms=Reaction(p50=640, p99=1210, n=22, steps=23),
    utilization=Utilization(ls_alone=0.25, colocated=0.58, others=0.1),
    ls_slowdown=Slowdown(uncontrolled=5.05, weights=1.36, controlled=1.3),
    batch_cpu_seconds=31.4,
    decided_by=Decided(stream=58, guard=1),
    ls_p99_ms={"alone": 14.0},
    shares={
        "alone": Share(utilization=0.25, batch_cpus=0.0),
        "uncontrolled": Share(utilization=0.99, batch_cpus=1.6),
        "weights": Share(utilization=0.98, batch_cpus=1.5),
        "controlled": Share(utilization=0.58, batch_cpus=0.52),
    },
    ls_requests=4_000,
    applied=44,
    controlled_seconds=60.0,
)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_one_of_the_values_and_enough_values_lie_at_or_below_it(values, pct):
    """Nearest rank: no value is made up."""
    found = percentile(values, pct)

    assert found in values
    assert sum(value <= found for value in values) >= len(values) * pct / 100 - 1e-9


def test_nothing_has_no_percentile():
    """Not measured is not zero."""
    assert percentile([], 99) is None


@pytest.mark.parametrize(
    ("cut", "reaction"),
    [
        pytest.param((10_300, 10_340), [340], id="a cut after a sample after the step answers it"),
        pytest.param((9_900, 10_020), [], id="a cut by a sample from before the step does not"),
        pytest.param((12_400, 12_600), [], id="nor one after the next step"),
    ],
)
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


def test_the_report_says_what_it_promised():
    """The keys that scripts read."""
    said = json.loads(as_json(GOOD))

    assert said["mode"] == "real"
    assert {"p50", "p99", "n"} <= said["reaction_ms"].keys()
    assert said["utilization"] == {"ls_alone": 0.25, "colocated": 0.58, "others": 0.1}
    assert said["ls_slowdown"] == {"uncontrolled": 5.05, "weights": 1.36, "controlled": 1.3}
    assert said["batch_cpu_seconds"] == 31.4
    assert said["decided_by"] == {"stream": 58, "guard": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({}, "", id="all is well"),
        pytest.param({"applied": 0}, "no decision changed", id="nothing applied"),
        pytest.param({"ls_requests": 0}, "answered no request", id="the service never ran"),
        pytest.param({"batch_cpu_seconds": 0.0}, "batch work got no CPU", id="the batch never ran"),
        pytest.param({"controlled_seconds": 0.0}, "before any controlled time", id="stopped too early"),
    ],
)
def test_a_loop_that_did_not_close_is_said_in_one_sentence(change, said):
    """And only then."""
    verdict = not_closed(msgspec.structs.replace(GOOD, **change))

    assert said in verdict
    assert bool(verdict) == bool(said)
    assert verdict.count("\n") == 0


def test_the_summary_holds_every_figure():
    """What a person quotes; what was not measured is a dash."""
    text = str(rows(GOOD)) + str(sentences(GOOD))

    assert all(part in text for part in ("5.05 x", "1.30 x", "14 ms", "25%", "58%", "31.4", "640 ms", "22 of 23", "58"))
    assert rows(GOOD)[1][2] == "-"


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        pytest.param(3.4, "With weights alone, it is 3.40 x.", id="the loop wins"),
        pytest.param(1.31, "On this load, weights alone are as good, with 1.50 CPUs", id="as good, with more work"),
    ],
)
def test_the_verdict_states_what_weights_alone_would_do(weights, said):
    """A sceptic reads it; so it argues against the loop where the figures do."""
    text = verdict(
        msgspec.structs.replace(GOOD, ls_slowdown=Slowdown(uncontrolled=5.0, weights=weights, controlled=1.3))
    )

    assert "58% busy instead of 25%" in text
    assert "1.30 x" in text
    assert said in text


@pytest.mark.parametrize(("controlled", "same"), [(1.1, False), (2.9, True)])
def test_the_verdict_on_memory_says_what_the_service_kept(controlled, same):
    """And where the lost memory did no harm."""
    held = {"alone": 150 << 20, "weights": 40 << 20, "controlled": 149 << 20}
    shares = {name: Share(utilization=0.5, batch_cpus=1.0, service_mem_bytes=size) for name, size in held.items()}
    slow = Slowdown(uncontrolled=None, weights=3.0, controlled=controlled)
    report = msgspec.structs.replace(GOOD, scenario="memory", shares=shares, ls_slowdown=slow)

    assert "the service keeps 40 MiB of 150 MiB, and its p99 is 3.00 x" in verdict(report)
    assert ("did not slow the service" in verdict(report)) == same
    assert [row[0] for row in rows(report)] == ["alone", "weights", "controlled"]
    assert sentences(report)[0] == ("service's memory", "alone 150 MiB, weights 40 MiB, controlled 149 MiB")


def test_there_is_no_verdict_on_what_did_not_run():
    assert verdict(msgspec.structs.replace(GOOD, shares={})) == ""
    assert (
        verdict(msgspec.structs.replace(GOOD, ls_slowdown=Slowdown(uncontrolled=5.0, weights=None, controlled=1.3)))
        == ""
    )


def test_a_machine_that_is_busy_with_something_else_is_said_to_be():
    """Its figures mean little, and whoever quotes them should know."""
    busy = msgspec.structs.replace(GOOD, utilization=Utilization(ls_alone=0.2, colocated=0.3, others=0.7))

    assert "these figures are not reliable" in str(sentences(busy))
    assert "mean little" not in str(sentences(GOOD))


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
