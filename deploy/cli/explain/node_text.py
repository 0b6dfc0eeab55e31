"""Formats a node's explanation for a terminal: findings, chain, and the arithmetic as a waterfall."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slacktide.deploy.cli.calc.calculations import block
from slacktide.deploy.runtime.text import count, instant, wrapped
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample, NodeUse
from slacktide.streams.analysis.explain.carried_out import what
from slacktide.streams.analysis.explain.cores import CpuGroup
from slacktide.streams.analysis.explain.evidence import Finding
from slacktide.streams.analysis.explain.held import pressure_text
from slacktide.streams.analysis.explain.node import Input, NodeExplanation, Step
from slacktide.streams.analysis.explain.offered import amount, resource_name
from slacktide.streams.analysis.explain.reclaimed import text_of as reclaimed_text
from slacktide.streams.decisions.cpu_list import cpu_ranges
from slacktide.streams.decisions.suppress.cpu_suppress import measured

WIDTH = 110
_TITLES = {"set": "last set"}


def findings_text(findings: Sequence[Finding]) -> str:
    """Format findings with their advice, problems first."""
    lines = []
    for one in findings:
        for number, line in enumerate(wrapped(f"{one.name}: {one.text}", WIDTH)):
            lines.append(f"{'' if number else one.severity:<7}  {line}")
        for number, line in enumerate(wrapped(one.advice, WIDTH - 9)):
            lines.append(f"         {'' if number else 'to do: ':<7}{line}")
    return "\n".join(lines) or "no problems found"


def age(span_ms: int) -> str:
    """Format an age."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if span_ms >= 2 * unit:
            return f"{span_ms / unit:.1f} {name} ago"
    return f"{span_ms / 1000:.1f} s ago"


def node_text(explanation: NodeExplanation) -> str:
    """Return the complete text."""
    policy = "no policy"
    if explanation.policy_version:
        policy = f"policy {explanation.policy_version} ({explanation.policy_place})"
    parts = [f"node {explanation.node}, {policy}", findings_text(explanation.findings), _chain(explanation.steps)]
    if explanation.figures:
        lines = ["what it offers to batch, mid and free pods:"]
        for figure in explanation.figures:
            lines += [] if figure.because is None else [block(figure.because)]
            published = "not on the node" if figure.published is None else amount(figure.published, figure.of)
            floored = ", kept at what running pods requested" if figure.floored else ""
            lines.append(f"  = {resource_name(figure.of)}: {published}{floored}")
        parts.append("\n".join(lines))
    if any(one.owner != "shared" for one in explanation.cpus):
        parts.append("\n".join(["what each CPU is for:", *map(_cpus, explanation.cpus)]))
    return "\n\n".join(parts)


def _cpus(one: CpuGroup) -> str:
    others = "best-effort pods may run there" if one.best_effort else "no best-effort pods"
    return f"  zone {one.zone}: {one.owner} {', '.join((one.cpus, *one.pods))}; {others}"


def _chain(steps: Sequence[Step]) -> str:
    outcomes = [step for step in steps if step.name == "outcome"]
    lines = []
    for step in steps:
        if step in outcomes[1:]:
            continue
        lines.append(f"{_TITLES.get(step.name, step.name):<12} {age(step.age_ms):<12}  {step.place}")
        for line in _LINES[type(step.record)](step.record):
            lines += [f"    {part}" for part in wrapped(line, WIDTH - 4, indent="  ")]
        lines.append(f"    of: {', '.join(_input(one) for one in step.inputs)}")
    if outcomes[1:]:
        lines.append("before that:")
    for step in outcomes[1:]:  # without arithmetic
        head, *change = list(_outcome(step.record))
        moved = step.record.knob is not None or step.record.before is not None
        more = f"; {change[0]}" if moved and change else ""
        lines.append(f"    {age(step.age_ms):<12} {step.place.partition}:{step.place.offset}  {head}{more}")
    return "\n".join(lines) or "no record in the span that was read"


def _input(one: Input) -> str:
    place = "" if one.place is None else f" ({one.place.partition}:{one.place.offset})"
    return f"{one.what} {one.name}{place}"


def _use(use: Use | NodeUse) -> str:
    return f"{amount(use.cpu_milli, 'cpu_milli')}, {amount(use.mem_bytes, 'mem_bytes')}"


def _sample(body: NodeSample) -> Iterator[str]:
    pods = count(len(body.pod_use), "pod")
    yield f"seq {body.seq}, {instant(body.observed_ms)}: node uses {_use(body.use)}; {pods}"
    yield f"best-effort limit in force: {limits_text(body.limits)}"


def _window(body: NodeMetric) -> Iterator[str]:
    covered = f"{body.covered_ms / 1000:.1f} of {body.window_ms / 1000:.0f} s"
    late = f", {body.late} late" if body.late else ""
    stale = f", stale for {body.stale_ms / 1000:.1f} s" if body.stale_ms else ""
    yield f"averages over {covered} ({count(body.samples, 'sample')}{late}{stale}), seq {body.seq}"
    yield f"node uses {_use(body.node_use)}; outside pods {_use(body.system_use)}; {count(len(body.pods), 'pod')}"
    for one in body.aggregates:
        cpu, mem = one.node_cpu_milli, amount(one.node_mem_bytes.p95, "bytes")
        spread = f"avg {cpu.avg:,}m, p50 {cpu.p50:,}m, p90 {cpu.p90:,}m, p95 {cpu.p95:,}m, p99 {cpu.p99:,}m"
        covered = f" ({one.covered_ms / 1000:.0f} s covered)" if one.covered_ms < one.window_ms else ""
        yield f"{one.window_ms / 60_000:g} min{covered}: CPU {spread}; memory p95 {mem}"


def _allocatable(body: NodeAllocatable) -> Iterator[str]:
    batch = f"batch-cpu {amount(body.batch_cpu_milli, 'milli')}, batch-memory {amount(body.batch_mem_bytes, 'bytes')}"
    mid = f"mid-cpu {amount(body.mid_cpu_milli, 'milli')}, mid-memory {amount(body.mid_mem_bytes, 'bytes')}"
    free = f"; free-cpu {amount(body.free_cpu_milli, 'milli')}, free-memory {amount(body.free_mem_bytes, 'bytes')}"
    yield f"{batch}; {mid}{'' if body.free_cpu_milli is None else free}"
    notes = [f"nothing is published: {body.reason}"] if body.reason else []
    notes += ["degraded"] if body.degraded else []
    if body.floored:
        notes.append(f"{', '.join(map(resource_name, body.floored))} kept at the requests of running pods")
    if notes:
        yield "; ".join(notes)


def _command(body: NodeCommand) -> Iterator[str]:
    why = f": {body.reason}" if body.reason else ""
    yield f"{body.answer}{why}, to seq {body.seq}, by worker {body.worker}"
    for hold in body.hold:
        yield f"{what(hold)}: {limits_text(hold.limits)} ({hold.bound}): {terms_text(hold.terms)}"
        yield from _pressure(hold.bound, hold.terms)
    for evict in body.evict:
        yield f"{what(evict)} ({evict.bound}): {terms_text(evict.terms)}"
    for setting in body.settings:
        value = "unlimited" if setting.value is None else setting.value
        yield f"{what(setting)}: {value} ({setting.bound}): {terms_text(setting.terms)}"


def _outcome(body: NodeOutcome) -> Iterator[str]:
    whom = f" on {body.concerns.namespace}/{body.concerns.name}" if body.concerns else ""
    times = f", {body.count} times" if body.count > 1 else ""
    why = f": {body.reason}" if body.reason else ""
    bound = f" ({body.bound})" if body.bound else ""
    yield f"{body.result}{why}{times}, {body.rule}{whom}{bound}, by the {body.origin}, seq {body.seq}"
    if body.knob is not None:
        before, after = ("none" if value is None else value for value in (body.knob.before, body.knob.after))
        yield f"{body.knob.knob} of {body.target}: {before} -> {after}"
    elif body.pod is None and (body.before or body.after):
        yield f"{limits_text(body.before)} -> {limits_text(body.after)}"
    if text := reclaimed_text(body):
        yield text
    if body.terms:
        yield terms_text(body.terms)
        yield from _pressure(body.bound, body.terms)


def _pressure(bound: str, terms: Terms) -> Iterator[str]:
    if text := pressure_text(bound, terms):
        yield text


_LINES: dict[type, Callable[[Any], Iterator[str]]] = {
    NodeSample: _sample,
    NodeMetric: _window,
    NodeAllocatable: _allocatable,
    NodeCommand: _command,
    NodeOutcome: _outcome,
}


def limits_text(limits: Limits | None) -> str:
    """Format a limit in millicores, or as CPUs of a CPU set."""
    limits = measured(limits)
    if limits is None:
        return "not known"
    if limits.be_cfs_quota_us is not None:
        quota_milli = 1_000 * limits.be_cfs_quota_us // limits.be_cfs_period_us
        cpus = limits.be_cpuset if limits.be_cpuset and len(limits.be_cpuset) * 1_000 < quota_milli else None
        return f"{quota_milli:,}m" if cpus is None else f"{quota_milli:,}m, CPUs {cpu_ranges(cpus)}"
    return f"no quota, CPUs {cpu_ranges(limits.be_cpuset)}" if limits.be_cpuset else "no limit"


def terms_text(terms: Terms) -> str:
    """Format named numbers in the order of the arithmetic."""
    return ", ".join(f"{name} {round(value, 6):,}" for name, value in terms.items())
