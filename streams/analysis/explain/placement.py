"""Reports which nodes could run a pod: compares its requests with each node's free resources."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.allocatable import OFFERED
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import UNCOVERED_MS, Use
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.policy.selector import matches
from slacktide.schemas.units import count
from slacktide.streams.analysis.explain.evidence import Finding, Place
from slacktide.streams.analysis.explain.manifest import NATIVE, Manifest
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.analysis.explain.offered import amount, disabled, resource_name
from slacktide.streams.decisions.resources.publishing import published_floor

SCHEDULER = "koord-scheduler"
"""Koordinator's scheduler, which handles batch resources."""
NAMED = 3
CORDONED = "cordoned"
_LABEL = "correct nodeSelector or affinity, or label a node"


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
    def free(self) -> int:
        """Return the free amount, as far as known."""
        return self.left if self.left is not None else self.sold or 0

    @property
    def enough(self) -> bool:
        """Return whether the request fits, as far as known."""
        return self.asked <= self.free


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
    """Compute the room of all nodes for the requests, sorted by name; without a manifest any node matches."""
    return [_node_room(log, asked, manifest, asked_ms) for log in sorted(nodes, key=lambda log: log.node)]


def _node_room(log: NodeLog, asked: Resources, manifest: Manifest | None, asked_ms: int) -> NodeRoom:
    unlike, off = unlike_of(manifest, log.facts), disabled(log)
    offered, stale_ms, frozen, why = log.allocatable, 0, False, "no figures are published"
    if offered is not None:  # heartbeats keep it valid
        stale_ms, why, age_ms = offered.body.stale_ms, offered.body.reason, log.uncovered_ms(offered, asked_ms)
        if age_ms > UNCOVERED_MS and any(getattr(asked, field) for field in OFFERED):
            stale_ms, frozen = stale_ms + age_ms, not stale_ms
    rooms: list[Room] = []
    for field in (*OFFERED, *NATIVE):
        if amount_asked := getattr(asked, field):
            if field in OFFERED:
                whole = None if offered is None else getattr(offered.body, field)
                left = left_of(field, whole, log)
            else:
                whole, left = None if log.facts is None else getattr(log.facts.allocatable, field), None
            rooms.append(Room(of=field, asked=amount_asked, sold=whole, left=left))
    return NodeRoom(
        node=log.node,
        selected=not unlike,
        unlike=unlike,
        stale_ms=stale_ms,
        frozen=frozen,
        why_none=why if off is None else off.text,
        rooms=rooms,
        place=None if offered is None else offered.place,
    )


def left_of(field: str, offered: int | None, log: NodeLog) -> int | None:
    """Return the free amount by the node's score, else by the pods of its newest keyframe; None: unknown."""
    if offered is None:
        return None
    if log.score is not None:
        tier, _, kind = field.partition("_")
        left: Use = getattr(log.score.body, f"{tier}_left")
        return int(getattr(left, kind))
    if log.keyframe is None:
        return None
    because = published_floor({field: offered}, log.pods).because[0]
    return max(0, offered - int(because.terms["floor"]))


def unlike_of(manifest: Manifest | None, facts: NodeFacts | None) -> str:
    """Return ``cordoned``, or the first constraint that the node's labels do not meet; "": neither."""
    if facts is None:
        return ""
    if facts.unschedulable or manifest is None:
        return CORDONED if facts.unschedulable else ""
    labels = facts.labels

    def has(key: str) -> str:
        return f"{key}={labels[key]}" if key in labels else f"no label {key}"

    for key, value in manifest.node_selector.items():
        if labels.get(key) != value:
            return f"nodeSelector requires {key}={value}, the node has {has(key)}"
    if manifest.affinity is None or any(matches(one, labels) for one in manifest.affinity):
        return ""
    if not manifest.affinity:
        return "node affinity has no terms, so it matches no node"
    named = ([*one.match_labels, *(each.key for each in one.match_expressions)] for one in manifest.affinity)
    keys = dict.fromkeys(key for keys in named for key in keys)
    return f"node affinity does not match, the node has {', '.join(map(has, keys))}"


def placement_findings(
    asked: Resources, manifest: Manifest | None, rooms: Sequence[NodeRoom], *, refused: bool = False
) -> Iterator[Finding]:
    """Report why the pod is pending, as far as Kafka and its manifest show.

    ``refused``: the scheduler found no node.
    """
    if manifest is not None:
        yield from _of_manifest(asked, manifest)
    if not rooms:
        text = "no node is known: the topics contain no inventory and no figures"
        yield Finding("pending.no-nodes", text, advice="check that an agent runs")
        return
    selected = [one for one in rooms if one.selected]
    if not selected:
        yield _no_node(rooms)
        return
    counting = [one for one in selected if not one.passed_over]
    considered = "" if len(counting) == len(rooms) else " that is considered"
    high = list(_too_high(counting, considered))
    yield from high
    if fitting := [one for one in counting if one.fits]:
        yield _fits(fitting, refused=refused)
        return
    if counting and not high:
        yield _short(counting, considered)
    yield from _passed_over(rooms, any_counts=bool(counting))


def refused_by_all(placement: PodPlacement) -> Iterator[Finding]:
    """Report why the scheduler found no node, if all refused the pod in its last attempt."""
    if placement.passed or not placement.asked or placement.dry_run:
        return
    reasons = "; ".join(f"{one.reason} on {one.count} ({', '.join(one.nodes[:NAMED])})" for one in placement.refused)
    yield Finding(
        "pending.refused",
        f"the scheduler asked about {count(placement.asked, 'node')}, and none accepts the pod: {reasons}",
        advice="run `slacktide explain node NAME` to see why a node is stale, full or overloaded; placement-config of "
        "the policy sets the load thresholds",
    )


def _of_manifest(asked: Resources, manifest: Manifest) -> Iterator[Finding]:
    offered = [resource_name(field) for field in OFFERED if getattr(asked, field)]
    if offered and manifest.scheduler != SCHEDULER:
        yield Finding(
            "pending.scheduler",
            f"the pod requests {' and '.join(offered)}, but its schedulerName is {manifest.scheduler}, not "
            f"{SCHEDULER}: {manifest.scheduler} neither scores load nor accounts for these resources",
            advice=f"set spec.schedulerName: {SCHEDULER}, or let a ClusterColocationProfile set it",
        )
    if manifest.scheduling:
        yield Finding("pending.condition", f"the scheduler reports: {manifest.scheduling}")
    if manifest.not_judged:
        yield Finding("pending.not-judged", f"not checked here: {', '.join(manifest.not_judged)}, and taints")


def _no_node(rooms: Sequence[NodeRoom]) -> Finding:
    cordoned = [one.node for one in rooms if one.unlike == CORDONED]
    if len(cordoned) == len(rooms):
        return Finding(
            "pending.cordoned",
            f"no node takes new pods: {count(len(rooms), 'node')} cordoned, {', '.join(cordoned[:NAMED])}",
            advice=f"kubectl uncordon {cordoned[0]}",
        )
    first = next(one for one in rooms if one.unlike != CORDONED)
    others = f"; {len(cordoned)} are cordoned" if cordoned else ""
    return Finding(
        "pending.selector",
        f"no node matches the pod's selector, such as {first.node}: {first.unlike}{others}",
        advice=_LABEL,
    )


def unserved(manifest: Manifest) -> Finding:
    """Report that no scheduler has tried the pod."""
    return Finding(
        "pending.unserved",
        "no scheduler has handled the pod: it has no condition PodScheduled; its schedulerName is "
        f"{manifest.scheduler}",
        advice=f"run a scheduler named {manifest.scheduler} (for {SCHEDULER}: docs/scheduler.md), "
        "or correct schedulerName",
    )


def _too_high(rooms: Sequence[NodeRoom], considered: str) -> Iterator[Finding]:
    """Report requests above the largest node's allocatable, if any node offers resources."""
    offering = [one for one in rooms if not one.why_none]
    for number, room in enumerate(rooms[0].rooms if rooms else ()):
        most, node = max(((one.rooms[number].sold or 0, one.node) for one in offering), default=(0, ""))
        if most and room.asked > most:
            asks = f"{resource_name(room.of)}: the pod requests {amount(room.asked, room.of)}"
            yield Finding(
                "pending.too-high",
                f"{asks}, but no node{considered} has more than {amount(most, room.of)} in total ({node})",
                advice="request less in each pod: batch resources are only what latency-sensitive pods leave unused",
            )


def _passed_over(rooms: Sequence[NodeRoom], *, any_counts: bool) -> Iterator[Finding]:
    """Report excluded nodes that would have room, or whose room is unknown."""
    passed = [one for one in rooms if one.passed_over and (one.has_room or (one.selected and one.silent))]
    if not passed:
        return
    passed.sort(key=lambda one: (one.unlike not in {"", CORDONED}, one.node))
    first = passed[0]
    advice = _LABEL if first.unlike else f"run `slacktide explain node {first.node}` to see why it is silent"
    reasons = [f"{one.node} ({one.passed_over}{', with room' * one.has_room})" for one in passed[:NAMED]]
    more = f" and {len(passed) - NAMED} more" if len(passed) > NAMED else ""
    yield Finding(
        "pending.passed-over" if any_counts else "pending.all-passed-over",
        f"{'these nodes are' if len(passed) > 1 else 'this node is'} not considered: {', '.join(reasons)}{more}",
        advice=f"kubectl uncordon {first.node}" if first.unlike == CORDONED else advice,
    )


def _fits(fitting: Sequence[NodeRoom], *, refused: bool) -> Finding:
    more = f" and {len(fitting) - NAMED} more" if len(fitting) > NAMED else ""
    uncounted = [resource_name(room.of) for room in fitting[0].rooms if room.left is None]
    but = f"; requests of other pods for {' and '.join(uncounted)} are not subtracted" if uncounted else ""
    text = f"the pod fits on {', '.join(one.node for one in fitting[:NAMED])}{more}{but}"
    if refused:
        return Finding("pending.fits-requests", f"by the requests alone, {text}")
    return Finding(
        "pending.fits",
        text,
        advice="check `kubectl describe pod`, the scheduler, taints and quotas: Kafka does not show why the pod waits",
    )


def _short(rooms: Sequence[NodeRoom], considered: str) -> Finding:
    """Report the closest node for each resource that is short on all nodes, or that no node has all resources."""
    short = []
    for number, of in enumerate(room.of for room in rooms[0].rooms):
        if not any(one.rooms[number].enough for one in rooms):
            best = max(rooms, key=lambda one: one.rooms[number].free)
            asked, most = amount(rooms[0].rooms[number].asked, of), amount(best.rooms[number].free, of)
            short.append(
                f"{resource_name(of)} is short on every node{considered}: {asked} is requested, {best.node} has most "
                f"free: {most}"
            )
    if not short:
        short.append(f"none of {count(len(rooms), 'node')}{considered} has enough of all resources at once")
    reasons = list(dict.fromkeys(one.why_none for one in rooms if one.why_none))
    why = f"; no batch resources are published: {reasons[0]}" if reasons and all(one.why_none for one in rooms) else ""
    return Finding(
        "pending.short",
        "; ".join(short) + why,
        advice="run `slacktide explain node NAME` to see the resources of a node and why; request less, or wait until "
        "load falls",
    )
