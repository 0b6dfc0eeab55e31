"""``slacktide explain node`` where the policy goes by pressure: stall, baseline, line and bound in words."""

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, LsPressure, PressureGate, PressureLook
from slacktide.streams.analysis.explain.held import pressure_text
from slacktide.streams.analysis.explain.node import NodeExplanation, explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.decisions.suppress.cpu_pressure import Bound, step
from testbed.chains import Chain, outcome, outcome_record
from testbed.snapshots import findings, situations, stable

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


def calm() -> NodeExplanation:
    """The answer `keep` has no terms: the newest look is shown all the same."""
    chain = by("pressure")
    looks = looked(msgspec.structs.replace(STALLED, cpu_stall_us=9_000))
    told = explained(chain, chain.run(1, 2, ls_pressure=looks, limits=UNLIMITED))
    assert next(one.record.answer for one in told.steps if one.name == "command") == "keep"
    return told


def came_of_a_cut() -> NodeExplanation:
    chain = by("pressure")
    now_ms = chain.run(1, 1)
    terms = step(LEARNED, STALLED).terms
    done = outcome(1, bound="pressure_cut", terms=terms, before=UNLIMITED, after=Limits(be_cfs_quota_us=2_000))
    chain.records.append(outcome_record(done))
    return explained(chain, now_ms)


def of_the_policy_before() -> NodeExplanation:
    chain = Chain()
    now_ms = chain.run(1, 2)
    chain.publish(by("pressure").policy)
    return explained(chain, now_ms)


def run(chain: Chain, seconds: int, **changes: Any) -> NodeExplanation:
    return explained(chain, chain.run(1, seconds, **changes))


OTHER = policy_of(Colocation(), ResourceThreshold(cpu_suppress_signal="both"))


@situations(
    "told",
    {
        "a cut by pressure": lambda: run(by("pressure"), 1, ls_pressure=looked(STALLED)),
        "a cut by both": lambda: run(by("both"), 1, ls_pressure=looked(STALLED)),
        "a sample that keeps what holds": calm,
        "what came of a cut": came_of_a_cut,
        "a sample without a look shows the baseline": lambda: run(by("pressure"), 1, ls_pressure=looked()),
        "a node that has no pressure is a warning": lambda: run(by("pressure"), 2),
        "a node that has no pressure, where both count": lambda: run(by("both"), 2),
        "a policy that goes by use has nothing of it": lambda: run(Chain(), 2, ls_pressure=looked(STALLED)),
        "a policy that suppresses nothing": lambda: run(Chain(OTHER), 2, ls_pressure=looked(STALLED)),
        "a sample of the policy before is no warning": of_the_policy_before,
    },
)
def test_pressure_is_explained(told: Callable[[], NodeExplanation], snapshot) -> None:
    """By stall, baseline, line and bound in words: of the newest look, of the command and of its outcome."""
    explanation = told()
    command = node_text(explanation).partition("\ncommand ")[2].partition("\n\nwhat it offers")[0]
    assert stable(f"{findings(explanation.findings, 'node.')}\n\ncommand {command}") == snapshot


CLOSED = msgspec.structs.replace(LEARNED, closed=True, cut_permille=900, be_permille=500)
FREE = msgspec.structs.replace(STALLED, idle_us=100_000)
HALTED = msgspec.structs.replace(STALLED, be_cpu_us=1_000)
CALM = msgspec.structs.replace(HALTED, cpu_stall_us=5_000)


@situations(
    "given",
    {
        "calm": (LEARNED, CALM),
        "idle": (LEARNED, FREE),
        "not_running": (LEARNED, HALTED),
        "paused": (PressureGate(wait_ms=700), STALLED),
        "cut": (LEARNED, STALLED),
        "held": (CLOSED, HALTED),
        "helped": (msgspec.structs.replace(CLOSED, proof_looks=1), CALM),
        "not_the_cause": (msgspec.structs.replace(CLOSED, proof_looks=1), HALTED),
        "unproven": (msgspec.structs.replace(CLOSED, closed_ms=7_950), STALLED),
    },
)
def test_each_bound_has_words_that_go_with_its_figures(given: tuple, snapshot) -> None:
    taken = step(*given)
    assert taken.bound in get_args(Bound)
    assert f"{taken.bound}: {pressure_text(f'pressure_{taken.bound}', taken.terms)}" == snapshot


def test_figures_are_shown_where_use_fixed_the_bound_and_unknown_terms_are_not_made_up() -> None:
    terms = step(LEARNED, CALM).terms

    assert pressure_text("formula", terms).endswith("the threshold is 400 ms")
    assert pressure_text("pressure_cut", {"other": 1}) == ""
    assert pressure_text("pressure_helped", terms) == "", "a figure that its words need is not there"
