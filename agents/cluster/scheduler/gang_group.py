"""What the extender knows of gangs: their pods and options, and the state of those that start together. Pure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.scheduler.pod import Order, SchedulerPod
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.gang import GangNeed, GangPlace, GangPlan
from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.streams.decisions.gang.membership import Kind, Options, needed

FORMING, PROBING, PLANNED = "gang_forming", "gang_probing", "gang_planned"
INVALID, NO_ROOM, TOO_LARGE = "gang_invalid", "gang_no_room", "gang_too_large"
MIN_RESOURCES = "gang_min_resources"
OFFER_S = 10.0
"""How long nodes count that a kube-scheduler offered."""
IDLE_S = 60.0
"""A group without pods is forgotten after this time: a controller may be replacing them."""
NAMED_MAX = 100
"""Pods that a record names."""
TEXT_MAX = 500
"""Characters of a reason: a response repeats it for each node, and an Event holds 1,024."""
OVER_MAX = 1_000
BACKOFF_S, BACKOFF_MAX_S = 1.0, 10.0
"""Between two attempts to plan a group, as a kube-scheduler's own."""


NEVER = -2
"""Before the first change of a node."""


class Held(NamedTuple):
    """Why a pod waits for its gang."""

    reason: str
    text: str

    @classmethod
    def cut(cls, reason: str, text: str) -> Held:
        """Return a reason whose text is cut if it is long."""
        return cls(reason, text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}...")


class Now(NamedTuple):
    """The time of a call."""

    mono_s: float
    wall_ms: int

    @classmethod
    def by(cls, clock: Clock) -> Now:
        """Return the time by both clocks."""
        return cls(mono_s(clock), clock.wall_ms())


class Work(NamedTuple):
    """What to write to pods now."""

    release: list[SchedulerPod]
    """Their gate is removed."""
    wake: list[SchedulerPod]
    """The kube-scheduler is made to try them again."""


class Offer(NamedTuple):
    """Nodes that a kube-scheduler's own rules left for pods of one shape."""

    nodes: tuple[str, ...]
    at_s: float


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that start together, mutable. Times are monotonic."""

    key: str
    satisfied: bool = False
    plan: GangPlan | None = None
    """The plan in force."""
    proposed: GangPlan | None = None
    """A plan or amendment of this replica that was not read back yet."""
    proposed_s: float = 0.0
    others: int = 0
    """How many plans of other replicas were in force when it was made."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the proposed one was read back, or given up."""
    places: dict[str, str] = field(default_factory=dict)
    """Node by uid, of the proposed plan or the one in force."""
    offers: dict[bytes, Offer] = field(default_factory=dict)
    """By shape."""
    asked: dict[str, float] = field(default_factory=dict)
    """When a kube-scheduler last asked about a pod, by uid."""
    alone: dict[str, float] = field(default_factory=dict)
    """When a pod's nominated node was last offered alone, by uid."""
    prompted: dict[str, float] = field(default_factory=dict)
    """When a pod was last released or woken, by uid."""
    held: Held | None = None
    published: Held | None = None
    """The last published reason to wait, and when it was."""
    published_s: float = -inf
    attempt_s: float = -inf
    tried: int = NEVER
    """The last change of a node before the last attempt; ``probed`` before pods were made to ask."""
    probed: int = NEVER
    due_s: float = -inf
    """No attempt by itself before this."""
    read_s: float = 0.0
    ending_s: float = -inf
    """When the end of the plan in force was last published; -inf: it was not."""
    over: dict[str, None] = field(default_factory=dict)
    """Plans that ended or were given up. Their records may come late, or again."""
    idle_s: float | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(BACKOFF_S, BACKOFF_MAX_S, random=lambda: 1.0))

    def propose(self, plan: GangPlan, now_s: float) -> None:
        """Wait until a plan or amendment is read back."""
        self.proposed, self.proposed_s, self.settled = plan, now_s, asyncio.Event()
        self.places = {one.pod_uid: one.node for one in plan.places}

    def enforce(self, plan: GangPlan, now_s: float) -> None:
        """A plan was read back."""
        if self.plan is None:
            self.read_s, self.ending_s = now_s, -inf
        self.plan, self.held, self.published = plan, None, None
        self.give_up({one.pod_uid: one.node for one in plan.places})
        self.backoff.reset()

    def give_up(self, places: Mapping[str, str]) -> None:
        """Nothing is proposed any more; these places are left."""
        self.proposed, self.places = None, dict(places)
        self.settled.set()

    def close(self, plan: str) -> None:
        """A plan ended, or was given up."""
        self.over[plan] = None
        if len(self.over) > OVER_MAX:
            del self.over[next(iter(self.over))]

    def is_offered(self, pod: SchedulerPod, now_s: float) -> bool:
        """Return whether a kube-scheduler's nodes for this pod's shape are known."""
        offer = None if pod.member is None else self.offers.get(pod.member.shape)
        return offer is not None and now_s <= offer.at_s + OFFER_S

    def pause(self, now_s: float) -> None:
        """Wait longer before each further attempt."""
        self.due_s = now_s + self.backoff.next_s()

    def is_idle(self, now_s: float) -> bool:
        """Return whether it has had no pods for long."""
        self.idle_s = now_s if self.idle_s is None else self.idle_s
        return now_s > self.idle_s + IDLE_S

    def ended(self, plan: GangPlan, now_ms: int, reason: str, why: str) -> GangPlan:
        """Return the record that ends a plan."""
        return replace(plan, decided_ms=now_ms, places=[], satisfied=self.satisfied, reason=reason, why=why)


class Standing(NamedTuple):
    """A group whose gangs are complete."""

    options: list[Options]
    needs: list[GangNeed]
    waiting: list[SchedulerPod]
    """Pods that can be placed, in the order in which they are."""

    @property
    def needs_plan(self) -> bool:
        """Return whether pods of it start together or not at all."""
        return any(one.needed for one in self.needs)


class Registry:
    """Pods in gangs, and the gangs' options."""

    def __init__(self) -> None:
        self.pods: dict[str, SchedulerPod] = {}
        """By uid: those that have not ended."""
        self._options: dict[str, dict[Kind, Options]] = {}
        """Of PodGroups, by gang and kind."""
        self._uids: dict[tuple[str, str], str] = {}
        self._gangs: dict[str, dict[str, None]] = {}
        self._first: dict[str, SchedulerPod] = {}
        """The first pod of each gang fixes options that are on pods."""

    def take(self, pod: SchedulerPod) -> bool:
        """Add or update a pod. Return whether it is in a gang and has not ended."""
        if self._uids.get(pod.key, pod.uid) != pod.uid:
            self.gone(pod.key)
        if pod.member is None or pod.member.of.kind == "native" or pod.asked.pod.phase in ENDED_PHASES:
            self.gone(pod.key)
            return False
        gang = pod.member.of.gang
        known = self.pods.get(pod.uid)
        if known is not None and known.member is not None and known.member.of.gang != gang:
            self.gone(pod.key)
        self.pods[pod.uid], self._uids[pod.key] = pod, pod.uid
        self._gangs.setdefault(gang, {})[pod.uid] = None
        self._first.setdefault(gang, pod)
        return True

    def find(self, key: tuple[str, str]) -> SchedulerPod | None:
        """Return a pod by namespace and name; None: it is unknown."""
        return self.pods.get(self._uids.get(key, ""))

    def gone(self, key: tuple[str, str]) -> None:
        """Remove a pod."""
        pod = self.pods.pop(self._uids.pop(key, ""), None)
        if pod is None or pod.member is None:
            return
        gang = pod.member.of.gang
        self._gangs[gang].pop(pod.uid, None)
        if not self._gangs[gang]:
            del self._gangs[gang], self._first[gang]

    def take_options(self, kind: Kind, gang: str, options: Options | None) -> list[str]:
        """Add or update the options of a PodGroup; None: it was deleted. Return the uids of its pods."""
        kept = {other: one for other, one in self._options.pop(gang, {}).items() if other != kind}
        if options is not None:
            kept[kind] = options
        if kept:
            self._options[gang] = kept
        return list(self._gangs.get(gang, ()))

    def options_of(self, gang: str) -> Options | Held:
        """Return what a gang asks for, or why that is unknown."""
        first = self._first.get(gang)
        if first is None or first.member is None:
            return Held(FORMING, f"gang {gang} has no pods yet")
        if first.member.of.own is not None:
            return first.member.of.own
        found = self._options.get(gang, {}).get(first.member.of.kind)
        return found or Held(FORMING, f"PodGroup {gang} does not exist")

    def exists(self, group: Group) -> bool:
        """Return whether a gang of the group has pods or a PodGroup."""
        return any(gang in self._gangs or gang in self._options for gang in group.key.split(","))

    def key_of(self, pod: SchedulerPod) -> str:
        """Return the key of the pod's group."""
        assert pod.member is not None
        return self._key(pod.member.of.gang)

    def _key(self, gang: str) -> str:
        options = self.options_of(gang)
        return ",".join(options.together) if isinstance(options, Options) else gang

    def members(self, group: Group) -> list[SchedulerPod]:
        """Return the pods of its gangs, without gangs that start with others now."""
        gangs = [gang for gang in group.key.split(",") if gang in self._gangs and self._key(gang) == group.key]
        return [self.pods[uid] for gang in gangs for uid in self._gangs[gang]]

    def waiting(self, group: Group) -> list[SchedulerPod]:
        """Return those that can be placed, in their order."""
        found = [one for one in self.members(group) if not one.node and one.member is not None and not one.member.kept]
        return sorted(found, key=attrgetter("order"))

    def named(self, group: Group) -> list[str]:
        """Return the names of the first pods without a node."""
        return [one.key[1] for one in self.waiting(group)[:NAMED_MAX]]

    def order(self, group: Group) -> Order:
        """Return the order of its first pod; a group that has one is required."""
        return min(one.order for one in self.members(group))

    def needs(self, group: Group) -> tuple[list[Options], list[GangNeed]] | Held:
        """Return what its gangs ask for, and how many places they still need."""
        all_of_them, needs = [], []
        for gang in group.key.split(","):
            options = self.options_of(gang)
            if isinstance(options, Held):
                return options
            if options.flaw:
                return Held.cut(INVALID, f"gang {gang}: {options.flaw}")
            if ",".join(options.together) != group.key:
                groups = ", ".join(options.together)
                return Held.cut(INVALID, f"gang {gang}: its groups are {groups}, not {group.key}")
            all_of_them.append(options)
            pods = [self.pods[uid] for uid in self._gangs.get(gang, ())]
            bound = sum(bool(one.node) for one in pods)
            needs.append(GangNeed(gang=gang, least=options.least, exist=len(pods), bound=bound, needed=options.least))
        group.satisfied |= all(one.bound >= one.least for one in needs)
        both = zip(all_of_them, needs, strict=True)
        return all_of_them, [
            replace(one, needed=needed(options, bound=one.bound, satisfied=group.satisfied)) for options, one in both
        ]

    def standing(self, group: Group) -> Standing | Held:
        """Return a group whose gangs are complete, or why they are not."""
        found = self.needs(group)
        if isinstance(found, Held):
            return found
        options, needs = found
        standing = Standing(options, needs, self.waiting(group))
        placeable = Counter(one.member.of.gang for one in standing.waiting if one.member is not None)
        for one in needs if standing.needs_plan else ():
            if one.exist < one.least:
                return Held(FORMING, f"{one.exist} of {one.least} pods of gang {one.gang} exist")
            if placeable[one.gang] < one.needed:
                count = f"{placeable[one.gang]} of {one.needed} pods of gang {one.gang}"
                return Held(FORMING, f"{count} can be placed: others have another gate, or are being deleted")
        return standing


def first_of_each_shape(pods: Sequence[SchedulerPod]) -> list[SchedulerPod]:
    """Return the first pod of each shape; one that a kube-scheduler sees already goes before gated ones."""
    seen: dict[bytes, SchedulerPod] = {}
    for pod in sorted(pods, key=is_gated):
        if pod.member is not None:
            seen.setdefault(pod.member.shape, pod)
    return list(seen.values())


def written(places: Mapping[str, str], pods: Mapping[str, SchedulerPod]) -> list[GangPlace]:
    """Return the places of known pods as a plan has them."""
    return [GangPlace(pod_uid=uid, name=pods[uid].key[1], node=node) for uid, node in places.items() if uid in pods]


def is_gated(pod: SchedulerPod) -> bool:
    """Return whether it waits for its gang before any scheduler sees it."""
    return pod.member is not None and pod.member.gated
