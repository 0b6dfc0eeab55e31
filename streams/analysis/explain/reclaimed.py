"""Reports memory that agents reclaimed from best-effort pods before any was evicted."""

from collections.abc import Iterable, Iterator

from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.streams.analysis.explain.carried_out import LATELY_MS
from slacktide.streams.analysis.explain.evidence import Finding, Logged
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.analysis.explain.offered import amount
from slacktide.streams.decisions.evict.node_evict import observed

_MEM = "mem_bytes"


def node_reclaimed_findings(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report what was reclaimed on a node lately, or why nothing can be."""
    lately = [one.body for one in log.outcomes if one.body.reclaimed is not None and one.age_ms(asked_ms) <= LATELY_MS]
    if not lately:
        return
    last = lately[-1]
    if last.bound == "lacks":
        yield Finding("memory.not-reclaimed", f"no memory is reclaimed before pods are evicted: {last.reason}")
        return
    pods = {one.concerns for one in lately}
    yield Finding(
        "memory.reclaimed",
        f"in the last {LATELY_MS // 1_000} s, {_done(lately)} from {len(pods)} best-effort pods, before any is "
        f"evicted: {_why(last)}",
    )


def pod_reclaimed_findings(
    outcomes: Iterable[Logged[NodeOutcome]], namespace: str, name: str, span_ms: int
) -> Iterator[Finding]:
    """Report what was reclaimed from one pod in the span that was read."""
    pod = PodName(namespace=namespace, name=name)
    own = [one.body for one in outcomes if one.body.reclaimed is not None and one.body.concerns == pod]
    own = sorted((one for one in own if one.bound != "lacks"), key=lambda one: one.acted_ms)
    if own:
        yield Finding(
            "pod.reclaimed",
            f"in the last {span_ms / 3_600_000:g} h, {_done(own)} from it, instead of an eviction; last: "
            f"{_why(own[-1])}",
        )


def text_of(outcome: NodeOutcome) -> str:
    """Describe what was reclaimed from a pod, how long it took, and the pressure before and after; "": nothing."""
    one = outcome.reclaimed
    if one is None:
        return ""
    return (
        f"{_done([outcome])} in {one.took_us / 1_000:.0f} ms; latency-sensitive pods waited for memory "
        f"{one.ls_mem_before_permille / 10:g}% of the time before, {one.ls_mem_after_permille / 10:g}% after"
    )


def _done(outcomes: Iterable[NodeOutcome]) -> str:
    found = list(outcomes)
    parts = [one.reclaimed for one in found if one.reclaimed is not None]
    asked, freed, swapped = (
        sum(of) for of in zip(*((one.asked_bytes, one.freed_bytes, one.swapped_bytes) for one in parts), strict=True)
    )
    if all(one.result == "dry-run" for one in found):
        return f"dry run: {amount(asked, _MEM)} would be reclaimed"
    swap = f", {amount(swapped, _MEM)} of it to swap" if swapped else ""
    return f"{amount(freed, _MEM)} were reclaimed ({amount(asked, _MEM)} asked){swap}"


def _why(outcome: NodeOutcome) -> str:
    return "; ".join(filter(None, (observed(outcome.terms), outcome.reason)))
