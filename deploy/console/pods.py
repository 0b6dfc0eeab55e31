"""Reads one pod at a moment: events, use and limits, and its controller's other pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slacktide.deploy.cli.explain.workload_text import pod_text
from slacktide.deploy.console.amounts import shown
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import PodEvent
from slacktide.deploy.console.standing import credit_text
from slacktide.deploy.runtime.text import instant
from slacktide.schemas.inventory import Pod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.sample import PodUse
from slacktide.streams.explain.evidence import Logged, Place
from slacktide.streams.explain.node_log import NodeLog, node_log
from slacktide.streams.explain.pod import PodExplanation, PodLog, explain_pod, last_placement
from slacktide.streams.records import Record

LIFE_MS = 24 * 3_600_000
"""The time span of a pod's shown events."""
OTHERS_MAX = 100
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""Kubernetes' generated suffix, without vowels (apimachinery, util/rand)."""
_INDEX = re.compile(r"-\d+$")
_TEMPLATE = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{6,10}$")
"""A ReplicaSet's template hash."""
FIGURES = ("used_cpu_milli", "used_mem_bytes", "throttled_permille", "requests_cpu_milli", "requests_mem_bytes",
           "limits_cpu_milli", "limits_mem_bytes")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAt:
    """The data of one pod."""

    events: Sequence[PodEvent]
    node: str
    """"": unknown."""
    explanation: PodExplanation | None
    """None: it has no records."""
    figures: dict[str, int | None]
    """The figures of ``FIGURES`` by name. None: unknown, or not set."""
    places: dict[str, Place]
    """Position of each figure's record."""


def controller_of(pod: str) -> str:
    """Derive the controller's name from the pod's name; without a controller return that name.

    Records have no owner references. A Deployment's pods are ``NAME-HASH-SUFFIX``, an indexed Job's
    ``NAME-INDEX-SUFFIX``, a StatefulSet's ``NAME-INDEX``, and all others ``NAME-SUFFIX``.
    """
    short = _SUFFIX.sub("", pod)
    return _INDEX.sub("", short) if short == pod else _INDEX.sub("", _TEMPLATE.sub("", short))


def pod_at(history: History, pod: str, at_ms: int, records: Sequence[Record]) -> PodAt:
    """Return one pod by NAMESPACE/NAME; ``records``: of its node, from Kafka."""
    events = history.pods.events(pod, at_ms - LIFE_MS, at_ms)
    node = history.pods.node_of(pod, at_ms)
    decision = history.decisions.at(node, history.end_ms(node, at_ms), records) if node else None
    namespace, _, name = pod.partition("/")
    log = None if decision is None else node_log(node, decision.records)
    outcomes = [Logged(body=one.body, place=one.place) for one in events if isinstance(one.body, NodeOutcome)]
    placements = [Logged(body=one.body, place=one.place) for one in events if isinstance(one.body, PodPlacement)]
    found = PodLog(
        nodes=[] if log is None else [log],
        on=log,
        outcomes=outcomes,
        span_ms=LIFE_MS,
        placement=last_placement(placements, namespace, name),
    )
    figures, places = dict.fromkeys(FIGURES), dict[str, Place]()
    if log is not None:
        figures |= _figures(log, namespace, name, places)
    return PodAt(
        events=events,
        node=node,
        explanation=explain_pod(found, namespace, name, None, at_ms),
        figures=figures,
        places=places,
    )


def _figures(log: NodeLog, namespace: str, name: str, places: dict[str, Place]) -> Iterator[tuple[str, int | None]]:
    """Yield the pod's use in the newest sample, and its requests and limits in the newest pod list."""
    pod = next((one for one in log.pods if (one.namespace, one.name) == (namespace, name)), None)
    if pod is None or log.keyframe is None or log.sample is None:
        return
    use = next((one for one in log.sample.body.pod_use if one.uid == pod.uid), PodUse(uid=pod.uid))
    throttled = None if not use.periods else 1_000 * (use.throttled_periods or 0) // use.periods
    used = (use.cpu_milli, use.mem_bytes, throttled)
    places |= dict.fromkeys(FIGURES, log.keyframe.place) | dict.fromkeys(FIGURES[: len(used)], log.sample.place)
    yield from zip(FIGURES, (*used, *_bounds(pod)), strict=True)


def _bounds(pod: Pod) -> Iterator[int | None]:
    """Yield the requests and limits, of batch resources if the pod has some."""
    for one in (pod.requests, pod.limits):
        yield one.batch_cpu_milli if one.batch_cpu_milli is not None else one.cpu_milli
        yield one.batch_mem_bytes if one.batch_mem_bytes is not None else one.mem_bytes


def page_of(history: History, pod: str, at_ms: int, records: Sequence[Record]) -> dict[str, Any]:
    """Return the page of one pod."""
    found = pod_at(history, pod, at_ms, records)
    namespace, _, name = pod.partition("/")
    controller = controller_of(name)
    others = [
        one
        for one in history.pods.names(at_ms, namespace)
        if one != pod and controller_of(one.partition("/")[2]) == controller != name
    ]
    text = found.explanation
    return {
        "node": found.node,
        "class": "" if text is None or not text.qos else f"{text.qos}, {text.priority_class}",
        "figures": found.figures,
        "findings": [] if text is None else text.findings,
        "events": [
            {name: getattr(one, name) for name in ("at_ms", "kind", "node", "uid")}
            | {"text": _text(one, found.node), "place": str(one.place), "credit": credit_text(history, one)}
            for one in found.events
        ],
        "controller": "" if controller == name else controller,
        "others": others[:OTHERS_MAX],
        "others_count": len(others),
    }


def pod_lines(history: History, pod: str, at_ms: int, figure: str, records: Sequence[Record]) -> Iterator[str]:
    """Explain one figure of a pod in lines: the text of ``slacktide explain pod``, then its events."""
    found = pod_at(history, pod, at_ms, records)
    value, place = found.figures.get(figure), found.places.get(figure)
    if value is not None and place is not None:
        yield from (f"{figure} {shown(value, figure)} at {instant(place.logged_ms)}, of {place}", "")
    if found.explanation is not None:
        yield from (*pod_text(found.explanation).split("\n"), "")
    if found.events:
        yield f"events {len(found.events):,} from {instant(at_ms - LIFE_MS)} to {instant(at_ms)}:"
    for one in found.events:
        yield f"{instant(one.at_ms)}  {one.kind} {one.namespace}/{one.name} on {one.node or 'no node'}"
        yield f"    {_text(one, found.node)}"
        if credit := credit_text(history, one):
            yield f"    {credit}"
        yield f"    of: {one.place}"


def _text(event: PodEvent, node: str) -> str:
    """Describe the event and its reason, for a placement also why the node was selected."""
    if not isinstance(event.body, PodPlacement):
        return event.text
    parts = [event.text]
    ranks = {one.node: (rank, one) for rank, one in enumerate(event.body.best, start=1)}
    if node in ranks:
        rank, one = ranks[node]
        parts.append(f"{node} was rank {rank} with score {one.score_permille / 10:.1f} ({one.bound})")
    elif ranks:
        best = event.body.best[0]
        parts.append(f"the best node was {best.node} with score {best.score_permille / 10:.1f} ({best.bound})")
    parts += [f"{one.count} rejected: {one.why or one.reason}" for one in event.body.refused]
    return "; ".join(parts)
