"""What the demo measured, as JSON for machines and as a table for people. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from slacktide.deploy.cli.demo.conditions import MEANINGS, TITLES, Name

LIMITED: tuple[Name, ...] = ("uncontrolled", "weights_only", "controlled")
BATCH_CPU_S_MIN = 0.01
OTHERS_PART_MAX = 0.35
"""Above this the machine is too busy with something else for the figures to mean much."""


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """Load steps up -> first lower limit in the kernel, milliseconds."""

    p50: int | None
    p99: int | None
    n: int
    """Steps that were answered."""
    steps: int
    """Steps in all."""


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods used, as a part of the machine."""

    ls_alone: float | None
    colocated: float | None
    others: float | None
    """What no pod accounts for, in controlled time: the loop, the view, and whatever else runs."""


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """The service's p99 latency over that when alone: ratio of the medians over the blocks."""

    uncontrolled: float | None
    weights_only: float | None
    controlled: float | None


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Who made the decisions that were applied, or found in force, in controlled time."""

    stream: int
    guard: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run; null: not measured."""

    mode: str
    reaction_ms: Reaction
    utilization: Utilization
    ls_slowdown: Slowdown
    batch_cpu_seconds: float
    decided_by: Decided
    ls_p99_ms: dict[Name, float | None]
    ls_requests: int
    applied: int
    """Decisions that changed a limit in a kernel, in the whole run."""
    controlled_seconds: float
    """Controlled time that was measured."""


def as_json(report: Report) -> bytes:
    """The report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def not_closed(report: Report) -> str:
    """Why the loop did not close, in one sentence; "" when it did."""
    if not report.controlled_seconds:
        return "The loop did not close: the demo ended before any controlled time was measured."
    if not report.ls_requests:
        return "The loop did not close: the latency-sensitive service answered no request."
    if report.batch_cpu_seconds < BATCH_CPU_S_MIN:
        return "The loop did not close: the batch work got no CPU time in controlled time."
    if not report.applied:
        return (
            f"The loop did not close: in {report.controlled_seconds:.0f} s of controlled time "
            "no decision changed a limit in the kernel."
        )
    return ""


def rows(report: Report) -> list[tuple[str, str, str, str]]:
    """The comparison: condition, what it is, p99 latency, slowdown."""
    slowdowns: dict[str, Any] = msgspec.structs.asdict(report.ls_slowdown) | {"ls_alone": 1.0}
    return [(TITLES[name], MEANINGS[name], _ms(report.ls_p99_ms.get(name)), _times(slowdowns[name])) for name in TITLES]


def sentences(report: Report) -> list[tuple[str, str]]:
    """The other figures, each with what it is."""
    use, reaction, decided = report.utilization, report.reaction_ms, report.decided_by
    reacted = f"p50 {_ms(reaction.p50)}, p99 {_ms(reaction.p99)}; {reaction.n} of {reaction.steps} steps"
    return [
        ("utilization by pods", f"{_part(use.ls_alone)} service alone -> {_part(use.colocated)} together, controlled"),
        ("everything else", _others(use.others)),
        ("batch work done", f"{report.batch_cpu_seconds:.1f} CPU seconds in {report.controlled_seconds:.0f} s"),
        ("load step -> lower limit", reacted),
        ("decided by", f"stream {decided.stream}, guard {decided.guard}; in all {report.applied} changed a limit"),
    ]


def _others(part: float | None) -> str:
    busy = part is not None and part > OTHERS_PART_MAX
    note = (
        ": the machine is busy with something else, these figures mean little"
        if busy
        else ", the loop and this view included"
    )
    return f"{_part(part)} of the machine{note}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
