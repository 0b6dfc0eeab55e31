"""Reports evictions of a pod and of its controller's other pods: rule, threshold, observed value, result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.units import count
from slacktide.streams.decisions.evict.node_evict import ENDS, NOTICE, observed
from slacktide.streams.explain.evidence import Finding, Logged, Place

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
    own = sum(one.name == name for one in done)
    span = f"in the last {span_ms / 3_600_000:g} h"
    if done:
        rules = Counter(one.rule for one in done)
        by_rule = ", ".join(f"{rule} {number}" for rule, number in sorted(rules.items()))
        times = "once" if own == 1 else f"{own} times"
        others = f", {len(done) - own} of other pods of {controller_of(name)}" if len(done) > own else ""
        yield Finding(
            name="evicted.often" if len(done) >= OFTEN else "evicted",
            text=f"evicted {times} {span}{others}: {by_rule}; last: {done[0].observed or done[0].reason}",
            advice=_advice(rules),
        )
    starved = sum(one.count for one in found if one.reason.startswith(NO_CREDIT))
    if starved:
        yield Finding(
            name="eviction.no-credit",
            text=f"{count(starved, 'selected eviction')} not carried out {span}: {NO_CREDIT} (eviction-budget-config); "
            "without credit, best-effort pods are throttled, and after 4 s the selected pods are frozen",
        )
    if not done:
        yield Finding(name="evicted.never", text=f"no eviction of it {span} that was read")


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
            name="eviction.notice",
            text=f"{last.rule} gave notice: it evicts the pod in {max(0, due_ms) / 1000:.0f} s if it still selects "
            f"it; {observed(last.terms)}",
            advice="save progress now (evictNoticeSeconds)",
        )


def _advice(rules: Counter[str]) -> str:
    memory = any("Memory" in rule for rule in rules)
    cpu = any("CPU" in rule for rule in rules)
    parts = ["request what the pod uses, so that it is placed where that is available"] if memory or cpu else []
    if memory:
        parts.append(
            "reduce its memory use, or reserve more of the node (colocation-config.memoryReclaimThresholdPercent)"
        )
    if cpu:
        parts.append("reserve more CPU (colocation-config.cpuReclaimThresholdPercent)")
    return "; ".join([*parts, "save progress regularly, so that an eviction loses little work"])
