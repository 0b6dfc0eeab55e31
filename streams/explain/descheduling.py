"""Reports whether descheduling passes selected a pod for eviction, or why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.descheduling import DeschedulingPass, SourceNode, Victim
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.explain.evidence import Finding, Logged
from slacktide.streams.explain.selling import amount

HELD_BACK = {
    "none_over": "no node is over its high thresholds",
    "none_lasting": "no node has been over its high thresholds for long enough",
    "no_targets": "no node has room below its low thresholds",
    "too_few_targets": "too few nodes have room below their low thresholds",
}
STOPPED = {
    "waiting": "it has not been over its thresholds for long enough",
    "relieved": "evicting other pods was enough",
    "no_more_pods": "no other pod of the node may be evicted and fits elsewhere",
    "budget_spent": "other nodes have no room left",
    "no_targets": HELD_BACK["no_targets"],
    "too_few_targets": HELD_BACK["too_few_targets"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The latest passes."""

    last: Logged[DeschedulingPass]
    chose: tuple[Logged[DeschedulingPass], Victim] | None
    """The last pass that chose the pod."""


def looks(passes: Sequence[Logged[DeschedulingPass]], namespace: str, name: str) -> Looks | None:
    """Select the passes that matter for a pod; None: there was no pass."""
    ordered = sorted(passes, key=lambda one: (one.body.epoch, one.body.number, one.place.offset))
    if not ordered:
        return None
    chose = [
        (one, own) for one in ordered for own in one.body.victims if (own.namespace, own.name) == (namespace, name)
    ]
    return Looks(last=ordered[-1], chose=chose[-1] if chose else None)


def descheduling_findings(
    looks: Looks | None, node: str, asked_ms: int, span_ms: int, *, wanted: bool
) -> Iterator[Finding]:
    """Explain the passes.

    Args:
        looks: the passes.
        node: the pod's; "": none.
        asked_ms: now, by Kafka's clock.
        span_ms: how far back passes were read.
        wanted: whether descheduling is configured.
    """
    if looks is None:
        if wanted:
            yield Finding(
                name="descheduling.silent",
                text=f"descheduling-config enables passes, but none was recorded in the last {span_ms / 3600000:g} h",
                advice="check that a bridge is leader and ready; it runs a pass each intervalSeconds",
            )
        return
    if looks.chose is not None:
        yield _chosen(*looks.chose, asked_ms)
    elif node:
        text = f"{_named(looks.last, asked_ms)} did not select it: {_why_not(looks.last.body, node)}"
        yield Finding(name="descheduling.stays", text=text)


def _named(logged: Logged[DeschedulingPass], asked_ms: int) -> str:
    body = logged.body
    return f"pass {body.epoch}/{body.number}, {logged.age_ms(asked_ms) / 1000:.0f} s ago ({logged.place}),"


def _chosen(logged: Logged[DeschedulingPass], victim: Victim, asked_ms: int) -> Finding:
    does = (
        "selected it for eviction, but only reports it (dryRun)" if logged.body.dry_run else "selected it for eviction"
    )
    return Finding(
        name="descheduling.dry-run" if logged.body.dry_run else "descheduling.chosen",
        text=f"{_named(logged, asked_ms)} {does}: {victim.node} is over its thresholds, {observed(victim.terms)}; "
        + "; ".join(_amounts(victim.terms)),
        advice="to evict it later, set its annotation scheduling.koordinator.sh/eviction-cost to a higher cost; "
        "2147483647: never",
    )


def _amounts(terms: Terms) -> Iterator[str]:
    """Describe each resource in which the node was overloaded."""
    for name, high in terms.items():
        resource = name.removeprefix("high_")
        if resource != name:
            used, own = terms.get(f"used_{resource}"), terms.get(f"pod_{resource}")
            short = resource.rpartition("_")[0]
            yield (
                f"{short} used {amount(used, resource)}, threshold {amount(high, resource)}, "
                f"the pod's share {amount(own, resource)}"
            )


def _why_not(body: DeschedulingPass, node: str) -> str:
    source = next((one for one in body.sources if one.node == node), None)
    if source is None:
        return HELD_BACK.get(body.bound, f"{node} is not over its high thresholds")
    staying = ", ".join(f"{one.count} {one.reason}" for one in source.staying)
    return f"{node} is over its thresholds, {observed(source.terms)}; {_stopped(source)}" + (
        f"; not evicted: {staying}" if staying else ""
    )


def _stopped(source: SourceNode) -> str:
    passes = f" ({source.terms['row_passes']} of {source.terms['tolerated_passes']} passes tolerated)"
    return STOPPED.get(source.bound, source.bound) + (passes if source.bound == "waiting" else "")
