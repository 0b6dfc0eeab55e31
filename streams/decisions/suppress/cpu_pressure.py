"""Decides whether to stop best-effort pods for a moment, because latency-sensitive groups stall.

A look of about 100 ms measures the stall of these groups per running time. Stall far above a learned baseline closes
the gate. The second look at stopped best-effort pods opens it again. If the stall did not fall, it had another cause:
the gate then stays open for a pause, which doubles each time. All values are integers in microseconds, milliseconds
and permille; divisions round down. Koordinator has no counterpart.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from slacktide.schemas.message import Terms
from slacktide.schemas.sample import PAUSE_MS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US, QUOTA_US_MIN

RISE_PERMILLE: Final = 1_500
"""Stall above this share of the baseline counts. A stop has helped if stall falls by the same factor."""
LINE_PERMILLE_MIN: Final = 400
"""Stall per running time that never counts, whatever the baseline."""
LEARNED_LOOKS: Final = 5
"""The baseline averages about this many looks without best-effort work."""

PROOF_LOOKS: Final = 2
"""Looks at stopped best-effort pods. The first one partly covers the time before the stop."""
RUNS_PERMILLE: Final = QUOTA_US_MIN * 1_000 // PERIOD_US
"""In thousandths of a CPU, however many the node has. Best-effort pods that use no more count as not running: it is
the smallest quota. Latency-sensitive pods count as running for no less."""

Bound: TypeAlias = Literal[
    "calm", "idle", "not_running", "paused", "cut", "held", "helped", "not_the_cause", "unproven"
]


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The gate after one or more looks."""

    gate: PressureGate
    bound: Bound
    terms: Terms


def fold(pressure: LsPressure) -> Step:
    """Apply the looks of a sample in order; return the step of the newest one. Without looks, the gate is unchanged."""
    gate = pressure.gate
    found = Step(gate=gate, bound="held" if gate.closed else "calm", terms={"base_permille": gate.base_permille})
    for look in pressure.looks:
        found = step(found.gate, look)
    return found


def step(gate: PressureGate, look: PressureLook) -> Step:
    """Apply one look to the gate."""
    be_permille = look.be_cpu_us * 1_000 // max(1, look.span_us)
    ran_us = max(1, look.ls_cpu_us, look.span_us * RUNS_PERMILLE // 1_000)
    mem_permille = look.mem_stall_us * 1_000 // ran_us
    stall_us = max(0, look.cpu_stall_us - look.throttled_us)
    stall_permille = stall_us * 1_000 // ran_us + mem_permille
    runs = be_permille > RUNS_PERMILLE
    stopped = gate.closed and 2 * be_permille <= gate.be_permille
    base = gate.base_permille
    if stopped or not runs:
        base += (stall_permille - base) // LEARNED_LOOKS
    line = max(LINE_PERMILLE_MIN, gate.base_permille * RISE_PERMILLE // 1_000)
    terms: Terms = {
        "cpu_stall_us": look.cpu_stall_us,
        "throttled_us": look.throttled_us,
        "mem_stall_us": look.mem_stall_us,
        "ls_run_us": ran_us,
        "stall_permille": stall_permille,
        "base_permille": gate.base_permille,
        "line_permille": line,
        "be_permille": be_permille,
        "idle_us": look.idle_us,
        "span_us": look.span_us,
    }
    wait_ms = max(0, gate.wait_ms - look.span_us // 1_000)
    learned = msgspec.structs.replace(gate, base_permille=base, wait_ms=wait_ms)
    if gate.closed:
        return _prove(learned, stall_permille, terms, stopped=stopped, span_ms=look.span_us // 1_000)
    if stall_permille <= line:
        return Step(gate=learned, bound="calm", terms=terms)
    if not runs:
        return Step(gate=learned, bound="not_running", terms=terms)
    if look.idle_us >= look.span_us and mem_permille <= line:
        # A whole CPU was idle all the time, so best-effort pods do not cause the stall.
        return Step(gate=learned, bound="idle", terms=terms)
    if wait_ms:
        return Step(gate=learned, bound="paused", terms=terms | {"wait_ms": wait_ms})
    closed = msgspec.structs.replace(
        learned, closed=True, closed_ms=0, proof_looks=0, cut_permille=stall_permille, be_permille=be_permille
    )
    return Step(gate=closed, bound="cut", terms=terms)


def _prove(gate: PressureGate, stall_permille: int, terms: Terms, *, stopped: bool, span_ms: int) -> Step:
    """Open the closed gate after the proof, or without a proof after ``PAUSE_MS_MAX``."""
    closed_ms, looks = gate.closed_ms + span_ms, gate.proof_looks + stopped
    terms = terms | {"cut_permille": gate.cut_permille, "proof_looks": looks, "closed_ms": closed_ms}
    if looks < PROOF_LOOKS and closed_ms < PAUSE_MS_MAX:
        held = msgspec.structs.replace(gate, closed_ms=closed_ms, proof_looks=looks)
        return Step(gate=held, bound="held", terms=terms)
    if looks >= PROOF_LOOKS and stall_permille * RISE_PERMILLE <= gate.cut_permille * 1_000:
        return Step(gate=PressureGate(base_permille=gate.base_permille), bound="helped", terms=terms)
    pause_ms = min(PAUSE_MS_MAX, 2 * gate.pause_ms)
    opened = PressureGate(base_permille=gate.base_permille, pause_ms=pause_ms, wait_ms=gate.pause_ms)
    bound: Bound = "not_the_cause" if looks >= PROOF_LOOKS else "unproven"
    return Step(gate=opened, bound=bound, terms=terms | {"pause_ms": gate.pause_ms})
