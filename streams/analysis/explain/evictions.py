"""Reports evictions and descheduling passes of a pod: rule, threshold, observed value, result."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.descheduling import DeschedulingPass, Victim
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.units import count
from slacktide.streams.analysis.explain.evidence import Finding, Logged, Place
from slacktide.streams.analysis.explain.offered import amount
from slacktide.streams.decisions.evict.node_evict import ENDS, NOTICE, observed

_SUFFIX = re.compile(r"(.+)-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]+)")
"""The suffix that controllers append: five characters of Kubernetes' alphabet, or a number."""
OFTEN = 3
NOTICE_OVER_MS = 30_000
"""A notice is shown for this long after its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A decision to evict one pod, and its result."""

    namespace: str
    name: str
    node: str
    rule: str
    acted_ms: int
    origin: str
    """stream or guard."""
    result: str
    """The eviction's result: applied, refused, failed or dry-run."""
    reason: str
    ended: str
    """How the pod ended; "": unknown, or it did not."""
    observed: str
    """Threshold and observed value."""
    terms: Terms
    spent: int | None
    """Evictions that the node's boot had spent by then; None: unknown."""
    count: int
    """The number of refusals that it represents."""
    places: list[Place]
    """The positions of the outcomes."""

    @property
    def done(self) -> bool:
        """Return whether the pod was evicted."""
        return self.result == "applied"


def controller_of(name: str) -> str:
    """Return the controller's name from the pod's name; "": unknown."""
    match = _SUFFIX.fullmatch(name)
    return match[1] if match else ""


def evictions_of(outcomes: Iterable[Logged[NodeOutcome]], namespace: str, name: str) -> list[Eviction]:
    """Return evictions of the pod and of its controller's other pods, newest first."""
    controller = controller_of(name)
    groups: dict[tuple[str, str, int, str, str], list[Logged[NodeOutcome]]] = {}
    for one in outcomes:
        body = one.body
        if body.pod is None or body.knob is not None or body.pod.namespace != namespace:
            continue
        if body.pod.name == name or (controller and controller_of(body.pod.name) == controller):
            groups.setdefault((body.node, body.boot_id, body.seq, body.rule, body.target), []).append(one)
    found = [eviction for group in groups.values() if (eviction := _eviction(group)) is not None]
    return sorted(found, key=lambda one: (-one.acted_ms, -(one.spent or 0), one.name))


def _eviction(group: Sequence[Logged[NodeOutcome]]) -> Eviction | None:
    """Build an eviction from the outcome with the decision's own id. Follow-ups have other bounds."""
    acts = [one.body for one in group if one.body.spent is not None or one.body.result in {"refused", "dry-run"}]
    ends = [one.body for one in group if one.body.bound in ENDS]
    if not acts:
        return None
    act = next((one for one in acts if one.result == "applied"), acts[0])
    assert act.pod is not None
    return Eviction(
        namespace=act.pod.namespace,
        name=act.pod.name,
        node=act.node,
        rule=act.rule,
        acted_ms=act.acted_ms,
        origin=act.origin,
        result=act.result,
        reason=act.reason,
        ended=ends[-1].reason if ends else "",
        observed=observed(act.terms),
        terms=act.terms,
        spent=None if act.spent is None else act.spent.evictions,
        count=act.count,
        places=[one.place for one in group],
    )


def eviction_findings(found: Sequence[Eviction], name: str, span_ms: int) -> Iterator[Finding]:
    """Report the evictions by rule and the refusals, with advice."""
    done = [one for one in found if one.done]
    span = f"in the last {span_ms / 3_600_000:g} h"
    if done:
        own = sum(one.name == name for one in done)
        rules = Counter(one.rule for one in done)
        by_rule = ", ".join(f"{rule} {number}" for rule, number in sorted(rules.items()))
        times = "once" if own == 1 else f"{own} times"
        others = f", {len(done) - own} of other pods of {controller_of(name)}" if len(done) > own else ""
        memory, cpu = (any(resource in rule for rule in rules) for resource in ("Memory", "CPU"))
        advice = ["request what the pod uses, so that it is placed where that is available"] if memory or cpu else []
        if memory:
            reserve = "reserve more of the node (colocation-config.memoryReclaimThresholdPercent)"
            advice.append(f"reduce its memory use, or {reserve}")
        if cpu:
            advice.append("reserve more CPU (colocation-config.cpuReclaimThresholdPercent)")
        yield Finding(
            "evicted.often" if len(done) >= OFTEN else "evicted",
            f"evicted {times} {span}{others}: {by_rule}; last: {done[0].observed or done[0].reason}",
            advice="; ".join([*advice, "save progress regularly, so that an eviction loses little work"]),
        )
    if starved := sum(one.count for one in found if one.reason.startswith(NO_CREDIT)):
        yield Finding(
            "eviction.no-credit",
            f"{count(starved, 'selected eviction')} not carried out {span}: {NO_CREDIT} (eviction-budget-config); "
            "without credit, best-effort pods are throttled, and after 4 s the selected pods are frozen",
        )
    if not done:
        yield Finding("evicted.never", f"no eviction of it {span} that was read")


def notice_findings(
    outcomes: Iterable[Logged[NodeOutcome]], namespace: str, name: str, asked_ms: int
) -> Iterator[Finding]:
    """Report that the pod has notice of an eviction."""
    own = [one.body for one in outcomes if one.body.pod == PodName(namespace=namespace, name=name)]
    last = max((one for one in own if one.bound == NOTICE), key=lambda one: one.acted_ms, default=None)
    if last is None or any(one.spent is not None and one.acted_ms >= last.acted_ms for one in own):
        return
    due_ms = last.acted_ms + int(last.terms.get("left_s", 0)) * 1_000 - asked_ms
    if due_ms > -NOTICE_OVER_MS:
        yield Finding(
            "eviction.notice",
            f"{last.rule} gave notice: it evicts the pod in {max(0, due_ms) / 1000:.0f} s if it still selects "
            f"it; {observed(last.terms)}",
            advice="save progress now (evictNoticeSeconds)",
        )


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
    **{bound: HELD_BACK[bound] for bound in ("no_targets", "too_few_targets")},
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
    """Explain the passes of the last ``span_ms`` for a pod on ``node`` ("": none); ``wanted``: they are configured."""
    if looks is None:
        if wanted:
            yield Finding(
                "descheduling.silent",
                f"descheduling-config enables passes, but none was recorded in the last {span_ms / 3600000:g} h",
                advice="check that a bridge is leader and ready; it runs a pass each intervalSeconds",
            )
        return
    logged, victim = looks.chose or (looks.last, None)
    body = logged.body
    made = f"pass {body.epoch}/{body.number}, {logged.age_ms(asked_ms) / 1000:.0f} s ago ({logged.place}),"
    if victim is not None:
        only = ", but only reports it (dryRun)" if body.dry_run else ""
        yield Finding(
            "descheduling.dry-run" if body.dry_run else "descheduling.chosen",
            f"{made} selected it for eviction{only}: {victim.node} is over its thresholds, {observed(victim.terms)}; "
            + "; ".join(_amounts(victim.terms)),
            advice="to evict it later, set its annotation scheduling.koordinator.sh/eviction-cost to a higher cost; "
            "2147483647: never",
        )
    elif node:
        yield Finding("descheduling.stays", f"{made} did not select it: {_why_not(body, node)}")


def _amounts(terms: Terms) -> Iterator[str]:
    """Describe each resource in which the node was overloaded."""
    for name, high in terms.items():
        resource = name.removeprefix("high_")
        if resource != name:
            of = {which: amount(terms.get(f"{which}_{resource}"), resource) for which in ("used", "pod")}
            short, threshold = resource.rpartition("_")[0], amount(high, resource)
            yield f"{short} used {of['used']}, threshold {threshold}, the pod's share {of['pod']}"


def _why_not(body: DeschedulingPass, node: str) -> str:
    source = next((one for one in body.sources if one.node == node), None)
    if source is None:
        return HELD_BACK.get(body.bound, f"{node} is not over its high thresholds")
    stopped = STOPPED.get(source.bound, source.bound)
    if source.bound == "waiting":
        stopped += f" ({source.terms['row_passes']} of {source.terms['tolerated_passes']} passes tolerated)"
    staying = ", ".join(f"{one.count} {one.reason}" for one in source.staying)
    not_evicted = f"; not evicted: {staying}" if staying else ""
    return f"{node} is over its thresholds, {observed(source.terms)}; {stopped}{not_evicted}"
