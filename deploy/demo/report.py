"""Formats the demo's results as JSON and as a table. Pure."""

from functools import partial
from typing import Any

import msgspec

from slacktide.deploy.demo.conditions import MEANINGS, NAMES, Name, Scenario

BATCH_CPU_S_MIN = 0.01
AS_GOOD = 1.05
"""Slowdowns that differ by less count as equal."""
NEXT = (
    ("slacktide up --sample", "run it on this machine, until you stop it"),
    ("slacktide topics tail outcome --follow", "in a second terminal: print what the agent did"),
    ("slacktide assess --prometheus URL", "report which batch resources your cluster could offer"),
)
OTHERS_PART_MAX = 0.35
"""Above this the machine is too busy with other work for meaningful figures."""


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """Time from load steps to the first lower limit in the kernel, milliseconds."""

    p50: int | None
    p99: int | None
    n: int
    """Number of answered steps."""
    steps: int


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the pods, as a part of the machine."""

    ls_alone: float | None
    colocated: float | None
    others: float | None
    """Use outside of pods, during controlled time: the loop, the view and other processes."""


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """The service's p99 latency relative to running alone: ratio of medians over the blocks."""

    uncontrolled: float | None
    weights: float | None
    controlled: float | None


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the pods in one condition."""

    utilization: float
    """The pods' use as a part of the machine."""
    batch_cpus: float
    """CPU seconds of batch work per second."""
    service_mem_bytes: int | None = None
    """Memory of the service at the end of a measurement; null: not measured."""


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions that were applied or already in force during controlled time, by origin."""

    stream: int
    guard: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one run; null: not measured."""

    mode: str
    scenario: Scenario = "cpu"
    reaction_ms: Reaction
    utilization: Utilization
    ls_slowdown: Slowdown
    batch_cpu_seconds: float
    decided_by: Decided
    ls_p99_ms: dict[Name, float | None]
    shares: dict[Name, Share]
    ls_requests: int
    applied: int
    """Decisions that changed a limit in a kernel, in the whole run."""
    controlled_seconds: float


def _shown(form: str, value: float | None) -> str:
    return "-" if value is None else form.format(value)


_ms, _times, _cpus, _part = (partial(_shown, form) for form in ("{:.0f} ms", "{:.2f} x", "{:.2f} CPUs", "{:.0%}"))


def as_json(report: Report) -> bytes:
    """Return the report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def not_closed(report: Report) -> str:
    """Return why the loop did not close, in one sentence; "": it did."""
    if not report.controlled_seconds:
        return "The loop did not close: the demo ended before any controlled time was measured."
    if not report.ls_requests:
        return "The loop did not close: the latency-sensitive service answered no request."
    if report.scenario == "cpu" and report.batch_cpu_seconds < BATCH_CPU_S_MIN:
        return "The loop did not close: the batch work got no CPU time in controlled time."
    if not report.applied:
        return (
            "The loop did not close: no decision changed a limit in the kernel in "
            f"{report.controlled_seconds:.0f} s of controlled time."
        )
    return ""


def rows(report: Report) -> list[tuple[str, str, str, str, str, str]]:
    """Return the comparison: condition, description, p99 latency, slowdown, utilization, batch work."""
    slower = slowdowns(report)
    found: list[tuple[str, str, str, str, str, str]] = []
    for name in NAMES[report.scenario]:
        share = report.shares.get(name)
        used = (None, None) if share is None else (share.utilization, share.batch_cpus)
        figures = _ms(report.ls_p99_ms.get(name)), _times(slower[name]), _part(used[0]), _cpus(used[1])
        found.append((name, MEANINGS[name], *figures))
    return found


def verdict(report: Report) -> str:
    """Return the conclusion in one or two sentences, even if weights alone do as well; "": not all conditions ran."""
    slow, shares = report.ls_slowdown, report.shares
    if not all(slowdowns(report)[name] and name in shares for name in NAMES[report.scenario]):
        return ""
    if report.scenario == "memory":
        return _memory_verdict(report)
    alone, weights, ours = (shares[name] for name in ("alone", "weights", "controlled"))
    text = (
        f"Controlled, the machine is {_part(ours.utilization)} busy instead of {_part(alone.utilization)}. The "
        f"service's p99 is {_times(slow.controlled)} that of the service alone; uncontrolled, it is "
        f"{_times(slow.uncontrolled)}."
    )
    if (slow.weights or 0) <= (slow.controlled or 0) * AS_GOOD and weights.batch_cpus >= ours.batch_cpus:
        return (
            f"{text} On this load, weights alone are as good, with {_cpus(weights.batch_cpus)} of batch work "
            f"instead of {_cpus(ours.batch_cpus)}. They protect CPU, but not memory: slacktide demo --scenario "
            "memory."
        )
    return f"{text} With weights alone, it is {_times(slow.weights)}."


def _memory_verdict(report: Report) -> str:
    slow, shares = report.ls_slowdown, report.shares
    alone, weights, ours = (_mib(shares[name].service_mem_bytes) for name in NAMES["memory"])
    text = (
        "With weights alone, batch work gets less CPU, but all the memory it requests: the service keeps "
        f"{weights} of {alone}, and its p99 is {_times(slow.weights)} that of the service alone. Controlled, "
        f"each batch pod is limited to the memory that it requested: the service keeps {ours}, and its p99 is "
        f"{_times(slow.controlled)}."
    )
    if (slow.weights or 0) <= (slow.controlled or 0) * AS_GOOD:
        return f"{text} On this machine the lost memory did not slow the service."
    return text


def slowdowns(report: Report) -> dict[str, float | None]:
    """Return the slowdown of each condition; of the service alone it is 1."""
    found: dict[str, Any] = msgspec.structs.asdict(report.ls_slowdown) | {"alone": 1.0}
    return found


def sentences(report: Report) -> list[tuple[str, str]]:
    """Return the other figures with descriptions."""
    use, reaction, decided = report.utilization, report.reaction_ms, report.decided_by
    reacted = f"p50 {_ms(reaction.p50)}, p99 {_ms(reaction.p99)}; {reaction.n} of {reaction.steps} steps"
    held = {name: share.service_mem_bytes for name, share in report.shares.items() if share.service_mem_bytes}
    memory = [("service's memory", ", ".join(f"{name} {_mib(held_bytes)}" for name, held_bytes in held.items()))]
    note = ", including Slacktide and this view"
    if use.others is not None and use.others > OTHERS_PART_MAX:
        note = ": the machine is busy with other work, so these figures are not reliable"
    return [
        *(memory if held else []),
        ("utilization by pods", f"{_part(use.ls_alone)} service alone -> {_part(use.colocated)} together, controlled"),
        ("everything else", f"{_part(use.others)} of the machine{note}"),
        ("batch work done", f"{report.batch_cpu_seconds:.1f} CPU seconds in {report.controlled_seconds:.0f} s"),
        ("load step -> lower limit", reacted),
        ("decided by", f"stream {decided.stream}, guard {decided.guard}; {report.applied} of these changed a limit"),
    ]


def _mib(value: int | None) -> str:
    return "-" if value is None else f"{value >> 20} MiB"
