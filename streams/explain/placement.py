"""Reports which nodes could run a pod: compares its requests with each node's free resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.allocatable import SOLD
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import UNCOVERED_MS, Use
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.policy.selector import Selector, matches
from slacktide.schemas.units import count
from slacktide.streams.decisions.resources.publishing import published_floor
from slacktide.streams.explain.evidence import Finding, Place
from slacktide.streams.explain.manifest import Manifest
from slacktide.streams.explain.node_log import NodeLog
from slacktide.streams.explain.selling import amount, disabled, resource_name

SCHEDULER = "koord-scheduler"
"""Koordinator's scheduler, which handles batch resources."""
NAMED = 3
CORDONED = "cordoned"
NATIVE = ("cpu_milli", "mem_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One resource on one node."""

    of: str
    """The field of Resources, unit in its name."""
    asked: int
    sold: int | None
    """Allocatable; None: the node has none."""
    left: int | None
    """Unrequested; None: unknown."""

    @property
    def enough(self) -> bool:
        """Return whether the request fits, as far as known."""
        return self.asked <= (self.left if self.left is not None else self.sold or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """One node as a candidate."""

    node: str
    selected: bool
    """It is not cordoned, and its labels match the pod's."""
    unlike: str
    """``cordoned``, or the first constraint that its labels do not meet; "": neither."""
    stale_ms: int
    """Time for which its agent is silent or its figures are unpublished; 0: neither."""
    frozen: bool
    """The worker is silent, so the agent's state is unknown."""
    why_none: str
    """Why the node offers no batch resources; "": it does."""
    rooms: list[Room]
    place: Place | None
    """The position of its allocatable record."""

    @property
    def fits(self) -> bool:
        """Return whether the pod fits."""
        return not self.passed_over and self.has_room

    @property
    def has_room(self) -> bool:
        """Return whether the requests fit into its free resources."""
        return all(room.enough for room in self.rooms)

    @property
    def passed_over(self) -> str:
        """Return why the node is excluded despite free resources; "": it is not excluded."""
        return self.unlike or self.silent

    @property
    def silent(self) -> str:
        """Return which part is silent, and for how long; "": none."""
        for_s = f"for {self.stale_ms / 1000:.0f} s"
        if self.frozen:
            return f"frozen: no worker has published its figures {for_s}"
        return f"stale {for_s}" if self.stale_ms else ""


def node_rooms(nodes: Sequence[NodeLog], asked: Resources, manifest: Manifest | None, asked_ms: int) -> list[NodeRoom]:
    """Compute the room of all nodes, sorted by name.

    Args:
        nodes: with figures and inventories.
        asked: the pod's requests.
        manifest: its node constraints; None: unknown.
        asked_ms: now, by the clock of record timestamps.
    """
    return [_node_room(log, asked, manifest, asked_ms) for log in sorted(nodes, key=lambda log: log.node)]


def _node_room(log: NodeLog, asked: Resources, manifest: Manifest | None, asked_ms: int) -> NodeRoom:
    body = None if log.allocatable is None else log.allocatable.body
    unlike = unlike_of(manifest, log.facts)
    off = disabled(log)
    stale_ms, frozen = _stale(log, asked, asked_ms)
    why = "no figures are published" if body is None else body.reason
    return NodeRoom(
        node=log.node,
        selected=not unlike,
        unlike=unlike,
        stale_ms=stale_ms,
        frozen=frozen,
        why_none=why if off is None else off.text,
        rooms=list(_rooms(asked, log)),
        place=None if log.allocatable is None else log.allocatable.place,
    )


def _stale(log: NodeLog, asked: Resources, asked_ms: int) -> tuple[int, bool]:
    """Return how long the allocatable record has been stale, and whether it is frozen. Heartbeats keep it valid."""
    if log.allocatable is None:
        return 0, False
    stale_ms, age_ms = log.allocatable.body.stale_ms, log.uncovered_ms(log.allocatable, asked_ms)
    uncovered = age_ms > UNCOVERED_MS and any(getattr(asked, field) for field in SOLD)
    return (stale_ms + age_ms if uncovered else stale_ms), uncovered and not stale_ms


def _rooms(asked: Resources, log: NodeLog) -> Iterator[Room]:
    for field in SOLD:
        if amount_asked := getattr(asked, field):
            sold = None if log.allocatable is None else getattr(log.allocatable.body, field)
            yield Room(of=field, asked=amount_asked, sold=sold, left=left_of(field, sold, log))
    for field in NATIVE:
        if amount_asked := getattr(asked, field):
            sold = None if log.facts is None else getattr(log.facts.allocatable, field)
            yield Room(of=field, asked=amount_asked, sold=sold, left=None)


def left_of(field: str, sold: int | None, log: NodeLog) -> int | None:
    """Return the free amount by the node's score, else by the pods of its newest keyframe; None: unknown."""
    if sold is None:
        return None
    if log.score is not None:
        tier, _, kind = field.partition("_")
        left: Use = getattr(log.score.body, f"{tier}_left")
        return int(getattr(left, kind))
    if log.keyframe is None:
        return None
    because = published_floor({field: sold}, log.pods).because[0]
    return max(0, sold - int(because.terms["floor"]))


def unlike_of(manifest: Manifest | None, facts: NodeFacts | None) -> str:
    """Return ``cordoned``, or the first constraint that the node's labels do not meet; "": neither."""
    if facts is None:
        return ""
    if facts.unschedulable:
        return CORDONED
    if manifest is None:
        return ""
    for key, value in manifest.node_selector.items():
        if facts.labels.get(key) != value:
            return f"nodeSelector requires {key}={value}, the node has {_label(facts, key)}"
    if manifest.affinity is not None and not any(matches(one, facts.labels) for one in manifest.affinity):
        keys = dict.fromkeys(key for one in manifest.affinity for key in _keys(one))
        there = ", ".join(_label(facts, key) for key in keys)
        return (
            f"node affinity does not match, the node has {there}"
            if there
            else "node affinity has no terms, so it matches no node"
        )
    return ""


def _keys(selector: Selector) -> list[str]:
    return [*selector.match_labels, *(one.key for one in selector.match_expressions)]


def _label(facts: NodeFacts, key: str) -> str:
    value = facts.labels.get(key)
    return f"no label {key}" if value is None else f"{key}={value}"


def placement_findings(
    asked: Resources, manifest: Manifest | None, rooms: Sequence[NodeRoom], *, refused: bool = False
) -> Iterator[Finding]:
    """Report why the pod is pending, as far as Kafka and its manifest show.

    ``refused``: the scheduler found no node.
    """
    if manifest is not None:
        yield from _scheduler(asked, manifest)
        yield from _of_manifest(manifest)
    if not rooms:
        text = "no node is known: the topics contain no inventory and no figures"
        yield Finding(name="pending.no-nodes", text=text, advice="check that an agent runs")
        return
    selected = [one for one in rooms if one.selected]
    if not selected:
        yield _no_node(rooms)
        return
    counting = [one for one in selected if not one.passed_over]
    of_all = len(counting) == len(rooms)
    high = list(_too_high(counting, of_all=of_all))
    yield from high
    fitting = [one for one in counting if one.fits]
    if fitting:
        yield _fits(fitting, refused=refused)
        return
    if counting and not high:
        yield from _short(counting, of_all=of_all)
    yield from _passed_over(rooms, any_counts=bool(counting))


def refused_by_all(placement: PodPlacement) -> Iterator[Finding]:
    """Report why the scheduler found no node, if all refused the pod in its last attempt."""
    if placement.passed or not placement.asked or placement.dry_run:
        return
    reasons = "; ".join(f"{one.reason} on {one.count} ({', '.join(one.nodes[:NAMED])})" for one in placement.refused)
    yield Finding(
        name="pending.refused",
        text=f"the scheduler asked about {count(placement.asked, 'node')}, and none accepts the pod: {reasons}",
        advice="run `slacktide explain node NAME` to see why a node is stale, full or overloaded; placement-config of "
        "the policy sets the load thresholds",
    )


def _scheduler(asked: Resources, manifest: Manifest) -> Iterator[Finding]:
    sold = [resource_name(field) for field in SOLD if getattr(asked, field)]
    if sold and manifest.scheduler != SCHEDULER:
        yield Finding(
            name="pending.scheduler",
            text=f"the pod requests {' and '.join(sold)}, but its schedulerName is {manifest.scheduler}, not "
            f"{SCHEDULER}: {manifest.scheduler} neither scores load nor accounts for these resources",
            advice=f"set spec.schedulerName: {SCHEDULER}, or let a ClusterColocationProfile set it",
        )


def _of_manifest(manifest: Manifest) -> Iterator[Finding]:
    if manifest.scheduling:
        yield Finding(name="pending.condition", text=f"the scheduler reports: {manifest.scheduling}")
    if manifest.not_judged:
        text = f"not checked here: {', '.join(manifest.not_judged)}, and taints"
        yield Finding(name="pending.not-judged", text=text)


def _no_node(rooms: Sequence[NodeRoom]) -> Finding:
    first = rooms[0]
    cordoned = [one.node for one in rooms if one.unlike == CORDONED]
    if len(cordoned) == len(rooms):
        return Finding(
            name="pending.cordoned",
            text=f"no node takes new pods: {count(len(rooms), 'node')} cordoned, {', '.join(cordoned[:NAMED])}",
            advice=f"kubectl uncordon {first.node}",
        )
    first = next(one for one in rooms if one.unlike != CORDONED)
    others = f"; {len(cordoned)} are cordoned" if cordoned else ""
    return Finding(
        name="pending.selector",
        text=f"no node matches the pod's selector, such as {first.node}: {first.unlike}{others}",
        advice="correct nodeSelector or affinity, or label a node",
    )


def unserved(manifest: Manifest) -> Finding:
    """Report that no scheduler has tried the pod."""
    return Finding(
        name="pending.unserved",
        text="no scheduler has handled the pod: it has no condition PodScheduled; its schedulerName is "
        f"{manifest.scheduler}",
        advice=f"run a scheduler named {manifest.scheduler} (for {SCHEDULER}: docs/scheduler.md), "
        "or correct schedulerName",
    )


def _too_high(rooms: Sequence[NodeRoom], *, of_all: bool) -> Iterator[Finding]:
    """Report requests above the largest node's allocatable, if any node offers resources."""
    selling = [one for one in rooms if not one.why_none]
    for number, room in enumerate(rooms[0].rooms if rooms else ()):
        most, node = max(((one.rooms[number].sold or 0, one.node) for one in selling), default=(0, ""))
        if most and room.asked > most:
            name = resource_name(room.of)
            yield Finding(
                name="pending.too-high",
                text=f"{name}: the pod requests {amount(room.asked, room.of)}, but no "
                f"node{_that_counts(of_all=of_all)} has more than {amount(most, room.of)} in total ({node})",
                advice="request less in each pod: batch resources are only what latency-sensitive pods leave unused",
            )


def _that_counts(*, of_all: bool) -> str:
    return "" if of_all else " that is considered"


def _passed_over(rooms: Sequence[NodeRoom], *, any_counts: bool) -> Iterator[Finding]:
    """Report excluded nodes that would have room, or whose room is unknown."""
    passed = [one for one in rooms if one.passed_over and (one.has_room or (one.selected and one.silent))]
    if not passed:
        return
    passed.sort(key=lambda one: (one.unlike not in {"", CORDONED}, one.node))
    reasons = [f"{one.node} ({one.passed_over}{', with room' * one.has_room})" for one in passed[:NAMED]]
    more = f" and {len(passed) - NAMED} more" if len(passed) > NAMED else ""
    yield Finding(
        name="pending.passed-over" if any_counts else "pending.all-passed-over",
        text=f"{'these nodes are' if len(passed) > 1 else 'this node is'} not considered: {', '.join(reasons)}{more}",
        advice=_to_count(passed[0]),
    )


def _to_count(one: NodeRoom) -> str:
    """Return the action that includes the node again."""
    if one.unlike == CORDONED:
        return f"kubectl uncordon {one.node}"
    if one.unlike:
        return "correct nodeSelector or affinity, or label a node"
    return f"run `slacktide explain node {one.node}` to see why it is silent"


def _fits(fitting: Sequence[NodeRoom], *, refused: bool) -> Finding:
    more = f" and {len(fitting) - NAMED} more" if len(fitting) > NAMED else ""
    uncounted = [resource_name(room.of) for room in fitting[0].rooms if room.left is None]
    but = f"; requests of other pods for {' and '.join(uncounted)} are not subtracted" if uncounted else ""
    text = f"the pod fits on {', '.join(one.node for one in fitting[:NAMED])}{more}{but}"
    if refused:
        return Finding(name="pending.fits-requests", text=f"by the requests alone, {text}")
    return Finding(
        name="pending.fits",
        text=text,
        advice="check `kubectl describe pod`, the scheduler, taints and quotas: Kafka does not show why the pod waits",
    )


def _short(rooms: Sequence[NodeRoom], *, of_all: bool) -> Iterator[Finding]:
    """Report the closest node for each resource that is short on all nodes, or that no node has all resources."""
    short = [
        _nearest(rooms, number, of_all=of_all)
        for number in range(len(rooms[0].rooms))
        if not any(one.rooms[number].enough for one in rooms)
    ]
    if not short:
        short.append(
            f"none of {count(len(rooms), 'node')}{_that_counts(of_all=of_all)} has enough of all resources at once"
        )
    reasons = list(dict.fromkeys(one.why_none for one in rooms if one.why_none))
    why = f"; no batch resources are published: {reasons[0]}" if reasons and all(one.why_none for one in rooms) else ""
    yield Finding(
        name="pending.short",
        text="; ".join(short) + why,
        advice="run `slacktide explain node NAME` to see the resources of a node and why; request less, or wait until "
        "load falls",
    )


def _nearest(rooms: Sequence[NodeRoom], number: int, *, of_all: bool) -> str:
    def left(one: NodeRoom) -> int:
        room = one.rooms[number]
        return room.sold or 0 if room.left is None else room.left

    best = max(rooms, key=left)
    room = best.rooms[number]
    return (
        f"{resource_name(room.of)} is short on every node{_that_counts(of_all=of_all)}: "
        f"{amount(room.asked, room.of)} is requested, {best.node} has most free: {amount(left(best), room.of)}"
    )
