"""Reads pods, Jobs and the queue at a moment from the history, as rows of pages and as lines of an explanation."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from slacktide.deploy.cli.explain.workload_text import job_text, pod_text
from slacktide.deploy.cli.queue.topics import rows, standing
from slacktide.deploy.console.history.minute import Held, JobRow, job_row
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import PodEvent
from slacktide.deploy.runtime.text import instant
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import CaseError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.queue import Phase, QueueState
from slacktide.schemas.queue_objects import WorkloadObject
from slacktide.schemas.sample import PodUse
from slacktide.schemas.topics import CREDIT, JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.analysis.explain.evidence import WORST_FIRST, Logged, Place, logged, place_of
from slacktide.streams.analysis.explain.job import JobExplanation, explain_job, statuses
from slacktide.streams.analysis.explain.node_log import NodeLog, node_log
from slacktide.streams.analysis.explain.offered import amount
from slacktide.streams.analysis.explain.pod import PodExplanation, PodLog, explain_pod, last_placement
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record

LIFE_MS = 24 * 3_600_000
"""The time span of a pod's shown events."""
OTHERS_MAX = 100
SHOWN_MAX = 200
"""Limit for listed Jobs and workloads; the filter finds the others."""
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""Kubernetes' generated suffix, without vowels (apimachinery, util/rand)."""
_INDEX = re.compile(r"-\d+$")
_TEMPLATE = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{6,10}$")
"""A ReplicaSet's template hash."""
FIGURES = ("used_cpu_milli", "used_mem_bytes", "throttled_permille", "requests_cpu_milli", "requests_mem_bytes",
           "limits_cpu_milli", "limits_mem_bytes")  # fmt: skip
_PHASES: tuple[Phase, ...] = ("evicting", "pending", "reserved", "finished")
_OF_JOB = ("job", "condition", "severity", "of", "active", "succeeded", "failed", "evictions", "lost_core_s", "place")


def shown(value: int, figure: str) -> str:
    """Format by the unit in the name: ``1,500m``, ``512 MiB``, ``12‰``, ``0.25%`` (from hundredths), or ``8 ms``."""
    if figure.endswith(("_milli", "_bytes")):
        return amount(value, figure)
    if figure.endswith("_permille"):
        return f"{value:,}‰"
    if figure.endswith(("_some", "_full")):
        return f"{value / 100:,.2f}%"
    return f"{value:,} ms" if figure.endswith("_ms") else f"{value:,}"


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
    placements = [Logged(body=one.body, place=one.place) for one in events if isinstance(one.body, PodPlacement)]
    found = PodLog(
        nodes=[] if log is None else [log],
        on=log,
        outcomes=[Logged(body=one.body, place=one.place) for one in events if isinstance(one.body, NodeOutcome)],
        span_ms=LIFE_MS,
        placement=last_placement(placements, namespace, name),
    )
    values, places = {} if log is None else _figures(log, namespace, name), dict[str, Place]()
    if values and log is not None and log.keyframe is not None and log.sample is not None:
        places = dict.fromkeys(FIGURES[:3], log.sample.place) | dict.fromkeys(FIGURES[3:], log.keyframe.place)
    return PodAt(
        events=events,
        node=node,
        explanation=explain_pod(found, namespace, name, None, at_ms),
        figures=dict.fromkeys(FIGURES) | values,
        places=places,
    )


def _figures(log: NodeLog, namespace: str, name: str) -> dict[str, int | None]:
    """Return the pod's use in the newest sample, and its requests and limits, of batch resources if it has some."""
    pod = next((one for one in log.pods if (one.namespace, one.name) == (namespace, name)), None)
    if pod is None or log.sample is None:
        return {}
    use = next((one for one in log.sample.body.pod_use if one.uid == pod.uid), PodUse(uid=pod.uid))
    values = [use.cpu_milli, use.mem_bytes]
    values.append(None if not use.periods else 1_000 * (use.throttled_periods or 0) // use.periods)
    for one in (pod.requests, pod.limits):
        values.append(one.batch_cpu_milli if one.batch_cpu_milli is not None else one.cpu_milli)
        values.append(one.batch_mem_bytes if one.batch_mem_bytes is not None else one.mem_bytes)
    return dict(zip(FIGURES, values, strict=True))


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
            | {"text": _text(one, found.node), "place": str(one.place), "credit": _credit(history, one)}
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
        if credit := _credit(history, one):
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


def _credit(history: History, event: PodEvent) -> str:
    """Return the node's credit and its spent part, for an eviction; "": the event spends none."""
    act = event.body
    if not isinstance(act, NodeOutcome) or act.spent is None:
        return ""
    spent = f"credit: {act.spent.evictions:,} spent with this one"
    record = history.objects.one(event.at_ms, CREDIT, act.node.encode())
    if record is None:
        return spent
    lease = decode(record.value, EvictionCredit)
    if lease.boot_id != act.boot_id:
        return f"{spent}; the grant is from another boot, {place_of(record)}"
    return f"{spent}, {lease.granted:,} granted by {place_of(record)}"


def listed(history: History, at_ms: int, text: str) -> dict[str, Any]:
    """Return all Jobs and the queue; ``text``: filters Jobs and workloads by name. Problems first, completed last."""
    found = sorted(
        (one for _, one in _named(history, at_ms, text)),
        key=lambda one: (WORST_FIRST.index(one.severity), one.condition == "Complete", one.job),
    )
    queue = _queue(history.objects.held(at_ms, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE))
    workloads = [one for one in queue["workloads"] if text in one["name"]]
    return {
        "jobs": [_row(one) for one in found[:SHOWN_MAX]],
        "jobs_count": len(found),
        **queue,
        "workloads": workloads[:SHOWN_MAX],
        "workloads_count": len(workloads),
    }


def job_of(history: History, name: str, at_ms: int) -> JobExplanation | None:
    """Return one Job by NAMESPACE/NAME; None: it has no status at that moment."""
    namespace, _, short = name.partition("/")
    for key, one in _named(history, at_ms, name):
        if one.job == name and (record := history.objects.one(at_ms, JOB_STATUS, key)) is not None:
            return explain_job(statuses([record]), namespace, short, at_ms)
    return None


def _named(history: History, at_ms: int, text: str) -> Iterable[tuple[bytes, JobRow]]:
    """Return the Jobs whose names contain a text, the newest of each name."""
    found: dict[str, tuple[bytes, JobRow]] = {}
    for key, one in history.objects.jobs(at_ms).items():
        before = found.get(one.job, (b"", one))[1]
        if text in one.job and (before.observed_ms, before.logged_ms) <= (one.observed_ms, one.logged_ms):
            found[one.job] = key, one
    return found.values()


def detailed(job: JobExplanation) -> dict[str, Any]:
    """Return one Job's details, and its explanation as text."""
    status = job.status
    details = {name: getattr(status, name) for name in ("failures", "evicted", "recent", "progress")}
    row = _row(job_row(Logged(body=status, place=job.place)))
    return {"row": row, "findings": job.findings, **details, "text": job_text(job)}


def job_lines(history: History, name: str, at_ms: int, figure: str) -> Iterator[str]:
    """Explain one figure of a Job in lines."""
    job = job_of(history, name, at_ms)
    if job is None:
        return
    value = _row(job_row(Logged(body=job.status, place=job.place))).get(figure)
    if isinstance(value, int):
        yield from (f"{figure} {value:,} at {instant(job.place.logged_ms)}, of {job.place}", "")
    yield from job_text(job).split("\n")


def _row(one: JobRow) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _OF_JOB}


@lru_cache(maxsize=2)
def _queue(held: Held) -> dict[str, Any]:
    """Return the rows of ``slacktide queue status`` with notes, and workloads with their state; until it changes.

    Without a state a workload is pending and was never tried.
    """
    objects = objects_of(held.records)
    try:
        queue = standing(objects)
        queues, notes = rows(queue.queues, wide=False)[1], queue.notes
    except CaseError as exc:
        queues, notes = [], [str(exc)]
    given = [one for one in objects if isinstance(one, WorkloadObject)]
    names = {one.metadata.uid: f"{one.metadata.namespace or 'default'}/{one.metadata.name}" for one in given}
    states = {one.body.uid: one for one in logged(held.records, QUEUE_STATE, QueueState)}
    places = {record.key: str(place_of(record)) for record in held.records if record.topic == QUEUE_WORKLOAD.name}
    workloads = []
    for one in given:
        uid, state = one.metadata.uid, states.get(one.metadata.uid)
        if state is None or state.body.phase != "gone":
            preemptor = "" if state is None else state.body.preemptor
            workloads.append(
                {
                    "name": names[uid],
                    "queue": one.spec.queue_name,
                    "phase": "pending" if state is None else state.body.phase,
                    "reason": "" if state is None else state.body.reason,
                    "preemptor": names.get(preemptor, preemptor),
                    "place": places.get(uid.encode(), "") if state is None else str(state.place),
                }
            )
    workloads.sort(key=lambda one: (_PHASES.index(one["phase"]), one["name"]))
    return {"queues": queues, "notes": notes, "workloads": workloads}
