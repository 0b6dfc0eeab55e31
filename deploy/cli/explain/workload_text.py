"""Formats the explanation of a pod, a Job, and its place in a queue for a terminal."""

from collections.abc import Callable, Iterator, Sequence

from slacktide.deploy.cli.explain.node_text import age, findings_text
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.inventory import Resources
from slacktide.schemas.placement import PodPlacement, RankedNode
from slacktide.schemas.topics import JOB_POD
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.analysis.explain.evictions import Eviction
from slacktide.streams.analysis.explain.evidence import Logged
from slacktide.streams.analysis.explain.job import JobExplanation, QueuePlace, borrowed, condition, remedy
from slacktide.streams.analysis.explain.offered import amount, resource_name
from slacktide.streams.analysis.explain.placement import NodeRoom, Room
from slacktide.streams.analysis.explain.pod import PodExplanation
from slacktide.streams.decisions.queue.missing import meaning

INDEXES_CHARS = 100
POINTS = 8
_LOAD, _ROOM = ("LOAD", "CPU USED/OF", "MEMORY USED/OF"), ("CPU LEFT/MOST", "MEMORY LEFT/MOST")
PLACEMENT_COLUMNS = ("NODE", "LEVEL", "SCORE", *_LOAD, "BALANCE", *_ROOM)
NODES_SHOWN = 20
EVICTIONS_SHOWN = 20


def queue_text(one: QueuePlace, now_ms: int) -> str:
    """Return the complete text."""
    return "\n".join(_queue_lines(one, now_ms))


def _queue_lines(one: QueuePlace, now_ms: int) -> Iterator[str]:
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
    wait, retry_ms = one.wait, one.state.retry_ms
    if wait is not None:
        text = f"{wait.least_s:,} to {wait.most_s:,} s" if wait.state == "interval" else f"{wait.state}: {wait.reason}"
        yield f"  wait: {text}"
    if retry_ms > now_ms:
        yield f"  next attempt in {(retry_ms - now_ms) / 1000:,.0f} s"
    units: dict[str, Callable[[int], str]] = {"cpu": cpu_text, "memory": mem_text}
    lacks = [
        f"{units.get(each.resource, '{:,}'.format)(each.amount)} more {each.resource} of {each.flavor}"
        for each in one.lacks
    ]
    if helps := remedy(one) or ", ".join(lacks):
        yield f"  would be admitted with {helps}"


def job_text(job: JobExplanation) -> str:
    """Return the complete text."""
    status = job.status
    parts = ["\n".join(_job_head(job)), findings_text(job.findings)]
    if job.queue is not None:
        parts.append(queue_text(job.queue, job.asked_ms))
    if status.failures:
        parts.append(table(["FAILED BY", "PODS"], [(one.why, one.pods) for one in status.failures]))
    if status.evicted:
        evicted = []
        for one in status.evicted:
            by, index = one.eviction, "" if one.index is None else str(one.index)
            when = age(max(0, job.asked_ms - by.acted_ms))
            evicted.append((one.pod, index, by.node, by.rule, by.threshold or by.bound, when))
        text = table(["POD", "INDEX", "NODE", "RULE", "THRESHOLD", "WHEN"], evicted)
        parts.append(f"evicted by Slacktide, the newest last:\n{text}")
    if status.recent:
        ended = []
        for pod in status.recent:
            index, when = "" if pod.index is None else str(pod.index), age(max(0, job.asked_ms - pod.seen_ms))
            codes = ", ".join(f"{each.name} {each.exit_code}" for each in pod.exits)
            ended.append((index, pod.pod, pod.node, pod.result, pod.why, codes, when))
        text = table(["INDEX", "POD", "NODE", "RESULT", "BY", "EXIT CODES", "WHEN"], ended)
        parts.append(f"failed pods, the newest last:\n{text}")
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
    left = "" if job.left is None else f", {job.left:,} left"
    if job.left is not None and job.pace_per_min:
        left += f"; {job.left / job.pace_per_min:,.0f} min at the recent rate of {job.pace_per_min:,.1f} a minute"
    yield f"job {job.namespace}/{job.name}{kind}, {condition(status)}"
    yield f"  {status.succeeded:,}{of} succeeded, {status.failed:,} failed{left}"
    yield f"  pods: {status.active:,} active, {status.ready:,} of them ready; {status.terminating:,} terminating"
    if indexes := status.completed_indexes:
        cut = "…" if len(indexes) > INDEXES_CHARS else ""
        yield f"  completed indexes: {indexes[:INDEXES_CHARS]}{cut}"
    if status.lost_core_ms:
        yield f"  lost: {status.lost_core_ms / 1000:,.0f} core-seconds, by the requests of pods that did not succeed"
    for one in status.conditions:
        yield f"  condition {one.type} {one.status}: {one.reason}"
    events = f"{JOB_POD.name} {job.place.partition}:{status.folded_to}"
    yield f"  {job.place}, {age(job.age_ms)}; includes events up to {events}"


def placement_text(placement: Logged[PodPlacement], asked_ms: int) -> str:
    """Format which nodes refused the pod and why, and the ranking of the others."""
    body = placement.body
    when = age(max(0, asked_ms - body.decided_ms))
    head = f"scheduler request {when}: {body.passed} of {count(body.asked, 'node')} accept the pod ({placement.place})"
    lines = [head]
    for refusing in body.refused:
        lines.append(f"  {refusing.count} {refusing.reason}: {', '.join(refusing.nodes)}")
        if why := refusing.why.removeprefix(f"{refusing.reason}: "):
            lines.append(f"    {why}")
    if body.best:
        lines.append(table(PLACEMENT_COLUMNS, [_ranked(one) for one in body.best]))
    for one in body.best:  # the CPUs and NUMA zones that the pod would get, with their score
        zones = [one.zones] if one.zones else []
        if one.cores:
            zones.insert(0, f"CPUs {one.cores}, of {one.terms.get('cores_free_count', 0)} that are free")
        if "numa_score" in one.terms:
            zones.append(f"NUMA score {one.terms['numa_score']} x {one.terms['numa_weight']}")
        if zones:
            lines.append(f"  {one.node}: {'; '.join(zones)}")
    return "\n".join(lines)


def _ranked(one: RankedNode) -> list[str]:
    terms, score = one.terms, f"{one.score_permille / 10:.1f}"

    def pairs(first: str, second: str) -> list[str]:
        """Format two amounts of CPU, and two of memory; -: not computed."""
        found = []
        for unit, name in (("milli", "cpu_milli"), ("bytes", "mem_bytes")):
            both = [terms.get(f"{which}_{unit}") for which in (first, second)]
            found.append("-" if None in both else " / ".join(amount(int(each or 0), name) for each in both))
        return found

    return [
        one.node,
        str(one.level),
        score if one.bound == "scored" else f"{score} ({one.bound})",
        f"{terms.get('load_score', 0)} x {terms.get('load_weight', 0)}",
        *pairs("used", "allocatable"),
        f"{terms.get('balance_permille', 0) / 10:.1f} x {terms.get('balance_weight', 0)}",
        *pairs("left", "most_left"),
    ]


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
    rows = []
    for one in ranked[:NODES_SHOWN]:
        short = [resource_name(room.of) for room in one.rooms if not room.enough]
        why = one.passed_over or (one.why_none or f"short of {', '.join(short)}" if short else "")
        rows.append((one.node, *map(_room, one.rooms), "yes" if one.fits else "no", why))
    asked = ", ".join(f"{resource_name(room.of)} {amount(room.asked, room.of)}" for room in rooms[0].rooms)
    more = f"\nand {count(len(rooms) - NODES_SHOWN, 'node')} more" if len(rooms) > NODES_SHOWN else ""
    return f"requested: {asked or 'nothing'}\n{table(head, rows)}{more}"


def _room(room: Room) -> str:
    left = "?" if room.left is None else amount(room.left, room.of)
    return "none" if room.sold is None else f"{left} / {amount(room.sold, room.of)}"


def _evictions(found: Sequence[Eviction]) -> str:
    rows = []
    for one in found[:EVICTIONS_SHOWN]:
        guard, times = " by the guard" if one.origin == "guard" else "", f", {one.count} times" if one.count > 1 else ""
        came = f"evicted{guard}, {one.ended or one.reason}" if one.done else f"{one.result}{guard}: {one.reason}{times}"
        spent = str(one.spent) if one.done and one.spent is not None else "-"
        places = ", ".join(f"{place.partition}:{place.offset}" for place in one.places)
        rows.append((instant(one.acted_ms), one.name, one.node, one.rule, one.observed or "-", came, spent, places))
    head = ("WHEN", "POD", "NODE", "RULE", "OBSERVED", "RESULT", "CREDIT SPENT", "OUTCOMES")
    more = f"\nand {len(found) - EVICTIONS_SHOWN} more" if len(found) > EVICTIONS_SHOWN else ""
    return f"evictions, the newest first:\n{table(head, rows)}{more}"
