"""``slacktide explain node`` where the policy goes by pressure: stall, baseline, line and bound in words."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import Bound, step
from slacktide.streams.explain.node import NodeExplanation, explain_node
from slacktide.streams.explain.node_log import node_log
from slacktide.streams.explain.pressure import pressure_text
from testbed.chains import Chain, outcome, outcome_record
from testbed.samples import SUPPRESS

STALLED = PressureLook(span_us=100_000, ls_cpu_us=100_000, be_cpu_us=200_000, idle_us=0, cpu_stall_us=90_000)
LEARNED = PressureGate(base_permille=120)
UNLIMITED = Limits(be_cfs_quota_us=None)


def by(signal: str) -> Chain:
    threshold = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_signal=signal)
    return Chain(policy_of(Colocation(enable=True), threshold))


def explained(chain: Chain, now_ms: int) -> NodeExplanation:
    return explain_node(node_log(chain.node, chain.records), now_ms)


def looked(*looks: PressureLook, gate: PressureGate = LEARNED) -> LsPressure:
    return LsPressure(gate=gate, looks=list(looks))


def squeezed(text: str) -> str:
    """A terminal's lines as one."""
    return " ".join(text.split())


def found(chain: Chain, now_ms: int, name: str) -> list[tuple[str, str]]:
    return [(one.severity, one.text) for one in explained(chain, now_ms).findings if one.name == name]


@pytest.mark.parametrize("signal", ["pressure", "both"])
def test_a_cut_is_explained_by_stall_baseline_line_and_bound_in_words(signal: str) -> None:
    chain = by(signal)
    text = squeezed(node_text(explained(chain, chain.run(1, 1, ls_pressure=looked(STALLED)))))

    words = (
        "latency-sensitive pods stalled 900 ms per second of running; their learned baseline is 120 ms, "
        "the threshold is 400 ms: stall is above the threshold, so best-effort pods are paused"
    )
    assert f"node.pressure: cut: {words}" in text
    assert "the limit by cpu_suppress: 20m (pressure_cut): cpu_stall_us 90,000, " in text
    assert text.count(words) == 2, "of the newest look, and of the command"


def test_a_sample_that_keeps_what_holds_shows_its_newest_look_all_the_same() -> None:
    """The answer `keep` has no terms."""
    chain = by("pressure")
    now_ms = chain.run(1, 2, ls_pressure=looked(msgspec.structs.replace(STALLED, cpu_stall_us=9_000)), limits=UNLIMITED)

    assert next(one.record.answer for one in explained(chain, now_ms).steps if one.name == "command") == "keep"
    words = (
        "calm: latency-sensitive pods stalled 90 ms per second of running; their learned baseline is 120 ms, "
        "the threshold is 400 ms: stall is not above the threshold, so best-effort pods run"
    )
    assert found(chain, now_ms, "node.pressure") == [("note", words)]


def test_what_came_of_a_cut_is_explained_too() -> None:
    chain = by("pressure")
    now_ms = chain.run(1, 1)
    terms = step(LEARNED, STALLED, 4_000).terms
    done = outcome(1, bound="pressure_cut", terms=terms, before=UNLIMITED, after=Limits(be_cfs_quota_us=2_000))
    chain.records.append(outcome_record(done))

    assert "so best-effort pods are paused" in squeezed(node_text(explained(chain, now_ms)))


def test_a_sample_without_a_look_shows_the_baseline() -> None:
    chain = by("pressure")

    assert found(chain, chain.run(1, 1, ls_pressure=looked()), "node.pressure") == [
        ("note", "calm: no measurement since the last sample; the learned baseline is 120 ms per second")
    ]


@pytest.mark.parametrize("signal", ["pressure", "both"])
def test_a_node_that_has_no_pressure_is_a_warning_that_names_doctor(signal: str) -> None:
    chain = by(signal)
    now_ms = chain.run(1, 2)
    (warning,) = (one for one in explained(chain, now_ms).findings if one.name == "node.no-pressure")

    assert (warning.severity, "best-effort pods are limited by CPU use" in warning.text) == ("warning", True)
    assert "slacktide doctor" in warning.advice
    assert found(chain, now_ms, "node.pressure") == []


@pytest.mark.parametrize("policy", [SUPPRESS, policy_of(Colocation(), ResourceThreshold(cpu_suppress_signal="both"))])
def test_a_policy_that_does_not_go_by_pressure_has_nothing_of_it(policy) -> None:
    chain = Chain(policy)
    names = {one.name for one in explained(chain, chain.run(1, 2, ls_pressure=looked(STALLED))).findings}

    assert not names & {"node.pressure", "node.no-pressure"}


def test_a_sample_of_the_policy_before_is_no_warning() -> None:
    chain = Chain()
    now_ms = chain.run(1, 2)
    chain.publish(by("pressure").policy)

    assert found(chain, now_ms, "node.no-pressure") == []


CLOSED = msgspec.structs.replace(LEARNED, closed=True, cut_permille=900, be_permille=500)
FREE = msgspec.structs.replace(STALLED, idle_us=100_000)
HALTED = msgspec.structs.replace(STALLED, be_cpu_us=1_000)
CALM = msgspec.structs.replace(HALTED, cpu_stall_us=5_000)


@pytest.mark.parametrize(
    ("gate", "look", "bound", "ends"),
    [
        (LEARNED, CALM, "calm", "so best-effort pods run"),
        (LEARNED, FREE, "idle", "a whole CPU was always idle, so best-effort pods run"),
        (LEARNED, HALTED, "not_running", "best-effort pods hardly run, so they are not the cause"),
        (
            PressureGate(wait_ms=700),
            STALLED,
            "paused",
            "pausing best-effort pods did not help before, so they are not paused for 600 ms",
        ),
        (LEARNED, STALLED, "cut", "so best-effort pods are paused"),
        (CLOSED, HALTED, "held", "best-effort pods are paused; 1 of 2 measurements of the effect are done"),
        (
            msgspec.structs.replace(CLOSED, proof_looks=1),
            CALM,
            "helped",
            "pausing at 900 ms of stall helped, so best-effort pods run again",
        ),
        (
            msgspec.structs.replace(CLOSED, proof_looks=1),
            HALTED,
            "not_the_cause",
            "did not help, so best-effort pods run again and are not paused for 500 ms",
        ),
        (
            msgspec.structs.replace(CLOSED, closed_ms=7_950),
            STALLED,
            "unproven",
            "did not slow down within 8,050 ms, so the pause ends, and they are not paused for 500 ms",
        ),
    ],
)
def test_each_bound_has_words_that_go_with_its_figures(gate: PressureGate, look, bound: str, ends: str) -> None:
    taken = step(gate, look, 4_000)

    assert taken.bound == bound
    assert bound in get_args(Bound)
    assert pressure_text(f"pressure_{bound}", taken.terms).endswith(ends)


def test_figures_are_shown_where_use_fixed_the_bound_and_unknown_terms_are_not_made_up() -> None:
    terms = step(LEARNED, CALM, 4_000).terms

    assert pressure_text("formula", terms).endswith("the threshold is 400 ms")
    assert pressure_text("pressure_cut", {"other": 1}) == ""
    assert pressure_text("pressure_helped", terms) == "", "a figure that its words need is not there"
