"""Formats the explanation of a pod, a Job, and its place in a queue for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.explain.node_text import age, findings_text
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.topics import JOB_POD
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.reasons import meaning
from slacktide.streams.explain.evictions import Eviction
from slacktide.streams.explain.evidence import Logged
from slacktide.streams.explain.job import JobExplanation, Lacks, QueuePlace, borrowed, condition, remedy
from slacktide.streams.explain.placement import NodeRoom, Room
from slacktide.streams.explain.pod import PodExplanation
from slacktide.streams.explain.selling import amount, resource_name

INDEXES_CHARS = 100
POINTS = 8
PLACEMENT_COLUMNS = (
    "NODE",
    "LEVEL",
    "SCORE",
    "LOAD",
    "CPU USED/OF",
    "MEMORY USED/OF",
    "BALANCE",
    "CPU LEFT/MOST",
    "MEMORY LEFT/MOST",
)
PLACEMENT_UNITS = {"milli": "cpu_milli", "bytes": "mem_bytes"}
NODES_SHOWN = 20
EVICTIONS_SHOWN = 20


def queue_text(one: QueuePlace, now_ms: int) -> str:
    """Return the complete text."""
    return "\n".join(_lines(one, now_ms))


def _lines(one: QueuePlace, now_ms: int) -> Iterator[str]:
    state, queue = one.state, one.cluster_queue or "-"
    reason = f", {one.reason}" if one.reason else ""
    if one.position:
        yield f"queue {queue}: position {one.position:,} of {one.pending_count:,}{reason}"
    else:
        started = ", started" if state.started else ""
        yield f"queue {queue}: {state.phase}{started}{reason}"
    if one.reason:
        yield f"  {meaning(one.reason).why}"
    if state.booking is not None:
        yield f"  has quota since {age(now_ms - state.booking.reserved_ms)}"
    if state.phase == "pending":
        yield from _waits(one, now_ms)
    if one.preempted is not None:
        done = one.preempted
        mine, theirs = done.eviction.victim, done.eviction.preemptor
        yield (
            f"  preempted {age(now_ms - done.at_ms)} by {done.by} of {theirs.cluster_queue}, priority "
            f"{theirs.priority:,}: {done.eviction.reason}"
        )
        for each in (theirs, mine):
            if text := borrowed(each.cluster_queue, each.share_before, each.share_after):
                yield f"  {text}"


def _waits(one: QueuePlace, now_ms: int) -> Iterator[str]:
    state, wait = one.state, one.wait
    if wait is not None:
        text = f"{wait.least_s:,} to {wait.most_s:,} s" if wait.state == "interval" else f"{wait.state}: {wait.reason}"
        yield f"  wait: {text}"
    if state.retry_ms > now_ms:
        yield f"  next attempt in {(state.retry_ms - now_ms) / 1000:,.0f} s"
    helps = remedy(one) or ", ".join(_amount(each) for each in one.lacks)
    if helps:
        yield f"  would be admitted with {helps}"


def _amount(one: Lacks) -> str:
    text = cpu_text(one.amount) if one.resource == "cpu" else mem_text(one.amount)
    text = text if one.resource in {"cpu", "memory"} else f"{one.amount:,}"
    return f"{text} more {one.resource} of {one.flavor}"


def job_text(job: JobExplanation) -> str:
    """Return the complete text."""
    status = job.status
    parts = ["\n".join(_job_head(job)), findings_text(job.findings)]
    if job.queue is not None:
        parts.append(queue_text(job.queue, job.asked_ms))
    if status.failures:
        parts.append(table(["FAILED BY", "PODS"], [(one.why, one.pods) for one in status.failures]))
    if status.evicted:
        parts.append("evicted by Slacktide, the newest last:\n" + _evicted(job))
    if status.recent:
        parts.append("failed pods, the newest last:\n" + _recent(job))
    if len(status.progress) > 1:
        points = status.progress[:: max(1, len(status.progress) // POINTS)]
        rows = [(instant(one.seen_ms), one.succeeded, one.failed) for one in points]
        parts.append(table(["AT", "SUCCEEDED", "FAILED"], rows))
    return "\n\n".join(parts)


def _job_head(job: JobExplanation) -> Iterator[str]:
    status = job.status
    spec = status.spec
    kind = "" if spec is None else ", Indexed" if spec.indexed else ", NonIndexed"
    of = "" if spec is None or spec.completions is None else f" of {spec.completions:,}"
    yield f"job {job.namespace}/{job.name}{kind}, {condition(status)}"
    yield f"  {status.succeeded:,}{of} succeeded, {status.failed:,} failed{_job_left(job)}"
    yield f"  pods: {status.active:,} active, {status.ready:,} of them ready; {status.terminating:,} terminating"
    if status.completed_indexes:
        yield f"  completed indexes: {_short(status.completed_indexes)}"
    if status.lost_core_ms:
        yield f"  lost: {status.lost_core_ms / 1000:,.0f} core-seconds, by the requests of pods that did not succeed"
    for one in status.conditions:
        yield f"  condition {one.type} {one.status}: {one.reason}"
    events = f"{JOB_POD.name} {job.place.partition}:{status.folded_to}"
    yield f"  {job.place}, {age(job.age_ms)}; includes events up to {events}"


def _job_left(job: JobExplanation) -> str:
    if job.left is None:
        return ""
    if not job.pace_per_min:
        return f", {job.left:,} left"
    return (
        f", {job.left:,} left; {job.left / job.pace_per_min:,.0f} min at the recent rate of {job.pace_per_min:,.1f} "
        "a minute"
    )


def _evicted(job: JobExplanation) -> str:
    rows = [
        (
            one.pod,
            "" if one.index is None else str(one.index),
            one.eviction.node,
            one.eviction.rule,
            one.eviction.threshold or one.eviction.bound,
            age(max(0, job.asked_ms - one.eviction.acted_ms)),
        )
        for one in job.status.evicted
    ]
    return table(["POD", "INDEX", "NODE", "RULE", "THRESHOLD", "WHEN"], rows)


def _recent(job: JobExplanation) -> str:
    rows = [
        (
            "" if one.index is None else str(one.index),
            one.pod,
            one.node,
            one.result,
            one.why,
            ", ".join(f"{each.name} {each.exit_code}" for each in one.exits),
            age(max(0, job.asked_ms - one.seen_ms)),
        )
        for one in job.status.recent
    ]
    return table(["INDEX", "POD", "NODE", "RESULT", "BY", "EXIT CODES", "WHEN"], rows)


def _short(text: str) -> str:
    return text if len(text) <= INDEXES_CHARS else f"{text[:INDEXES_CHARS]}…"


def placement_text(placement: Logged[PodPlacement], asked_ms: int) -> str:
    """Format which nodes refused the pod and why, and the ranking of the others."""
    body = placement.body
    when = age(max(0, asked_ms - body.decided_ms))
    head = f"scheduler request {when}: {body.passed} of {count(body.asked, 'node')} accept the pod ({placement.place})"
    lines = [head, *(line for one in body.refused for line in _refusing(one))]
    if body.best:
        lines.append(table(PLACEMENT_COLUMNS, [tuple(_row(one)) for one in body.best]))
        lines += [f"  {one.node}: {zones}" for one in body.best if (zones := _zones(one))]
    return "\n".join(lines)


def _refusing(one: RefusingNodes) -> Iterator[str]:
    yield f"  {one.count} {one.reason}: {', '.join(one.nodes)}"
    if why := one.why.removeprefix(f"{one.reason}: "):
        yield f"    {why}"


def _row(one: RankedNode) -> Iterator[str]:
    terms = one.terms
    score = f"{one.score_permille / 10:.1f}"
    yield from (one.node, str(one.level), score if one.bound == "scored" else f"{score} ({one.bound})")
    yield f"{terms.get('load_score', 0)} x {terms.get('load_weight', 0)}"
    yield from (_pair(terms, "used", "allocatable", unit) for unit in PLACEMENT_UNITS)
    yield f"{terms.get('balance_permille', 0) / 10:.1f} x {terms.get('balance_weight', 0)}"
    yield from (_pair(terms, "left", "most_left", unit) for unit in PLACEMENT_UNITS)


def _zones(one: RankedNode) -> str:
    """Return the NUMA zones that the pod would get, with their score; "": not applicable."""
    parts = [one.zones] if one.zones else []
    if "numa_score" in one.terms:
        parts.append(f"NUMA score {one.terms['numa_score']} x {one.terms['numa_weight']}")
    return "; ".join(parts)


def _pair(terms: Terms, one: str, other: str, unit: str) -> str:
    """Format two amounts; -: not computed."""
    found = [terms.get(f"{name}_{unit}") for name in (one, other)]
    return "-" if None in found else " / ".join(amount(int(each or 0), PLACEMENT_UNITS[unit]) for each in found)


def pod_text(explanation: PodExplanation) -> str:
    """Return the complete text."""
    parts = ["\n".join(_pod_head(explanation)), findings_text(explanation.findings)]
    if explanation.rooms:
        parts.append(_rooms(explanation.rooms))
    if explanation.placement is not None:
        parts.append(placement_text(explanation.placement, explanation.asked_ms))
    if explanation.evictions:
        parts.append(_evictions(explanation.evictions))
    return "\n\n".join(parts)


def _pod_head(explanation: PodExplanation) -> Iterator[str]:
    placed = explanation.placement is not None and explanation.placement.body.passed
    nowhere = "on no node with figures" if placed else "on no node"
    where = f"on node {explanation.node}" if explanation.node else nowhere
    of_class = f", {explanation.qos}, {explanation.priority_class}" if explanation.qos else ""
    yield f"pod {explanation.namespace}/{explanation.name}, {where}{of_class}"
    if explanation.requests is not None and explanation.limits is not None:
        place = "" if explanation.pod_place is None else f" ({explanation.pod_place})"
        yield f"  requests {_resources(explanation.requests)}; limits {_resources(explanation.limits)}{place}"
    run = explanation.running
    if run is not None:
        cpu, mem = amount(run.use.cpu_milli, "cpu_milli"), amount(run.use.mem_bytes, "mem_bytes")
        covered = f"{run.covered_ms / 1000:.0f} of {run.window_ms / 1000:.0f} s"
        yield f"  uses {cpu}, {mem} on average over {covered}, {age(run.age_ms)} ({run.place})"


def _resources(amounts: Resources) -> str:
    asked = [(field, getattr(amounts, field)) for field in amounts.__struct_fields__]
    return ", ".join(f"{resource_name(field)} {amount(value, field)}" for field, value in asked if value) or "nothing"


def _rooms(rooms: Sequence[NodeRoom]) -> str:
    """Format the nodes, best first: those where the pod fits, then those that match its selector."""
    ranked = sorted(rooms, key=lambda one: (not one.fits, not one.selected, one.node))
    head = ["NODE", *(f"{resource_name(room.of).upper()} FREE/OFFERED" for room in rooms[0].rooms), "FITS", "WHY NOT"]
    rows = [
        (one.node, *(_room(room) for room in one.rooms), "yes" if one.fits else "no", _why(one))
        for one in ranked[:NODES_SHOWN]
    ]
    asked = ", ".join(f"{resource_name(room.of)} {amount(room.asked, room.of)}" for room in rooms[0].rooms)
    more = f"\nand {count(len(rooms) - NODES_SHOWN, 'node')} more" if len(rooms) > NODES_SHOWN else ""
    return f"requested: {asked or 'nothing'}\n{table(head, rows)}{more}"


def _room(room: Room) -> str:
    left = "?" if room.left is None else amount(room.left, room.of)
    return "none" if room.sold is None else f"{left} / {amount(room.sold, room.of)}"


def _why(one: NodeRoom) -> str:
    if one.passed_over:
        return one.passed_over
    short = [resource_name(room.of) for room in one.rooms if not room.enough]
    if not short:
        return ""
    return one.why_none or f"short of {', '.join(short)}"


def _evictions(found: Sequence[Eviction]) -> str:
    rows = [
        (
            instant(one.acted_ms),
            one.name,
            one.node,
            one.rule,
            one.observed or "-",
            _came(one),
            str(one.spent) if one.done and one.spent is not None else "-",
            ", ".join(f"{place.partition}:{place.offset}" for place in one.places),
        )
        for one in found[:EVICTIONS_SHOWN]
    ]
    head = ("WHEN", "POD", "NODE", "RULE", "OBSERVED", "RESULT", "CREDIT SPENT", "OUTCOMES")
    more = f"\nand {len(found) - EVICTIONS_SHOWN} more" if len(found) > EVICTIONS_SHOWN else ""
    return f"evictions, the newest first:\n{table(head, rows)}{more}"


def _came(one: Eviction) -> str:
    times = f", {one.count} times" if one.count > 1 else ""
    guard = " by the guard" if one.origin == "guard" else ""
    if not one.done:
        return f"{one.result}{guard}: {one.reason}{times}"
    return f"evicted{guard}, {one.ended or one.reason}"
