"""Plans of gangs: proposed, put in force when they are read back from Kafka, amended and ended. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from slacktide.agents.cluster.scheduler.gang_group import (
    MIN_RESOURCES,
    Group,
    Held,
    Now,
    Registry,
    Standing,
    written,
)
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.gang import GangPlan
from slacktide.streams.decisions.gang.membership import WAITING_S
from slacktide.streams.decisions.load.load_aware_estimator import NOTHING, RESOURCES, Amounts, LoadAwarePod
from slacktide.streams.decisions.load.pod_placement import Asking, Choice, Judged, Refusal, asking

PUBLISH_S = 2.0
"""A plan that was not read back within this time is given up."""


class Nodes:
    """The view at one moment, as a plan sees it."""

    def __init__(self, view: View, now: Now) -> None:
        self._view, self._now = view, now

    def survey(self, asks: Asking, nodes: Sequence[str]) -> Choice:
        """Judge these nodes for a pod."""
        return self._view.survey(asks, nodes, now_s=self._now.mono_s)

    def judged(self, asks: Asking, node: str) -> Judged:
        """Judge one node for a pod."""
        return self._view.judged(asks, node, now_s=self._now.mono_s)

    def unrequested(self, node: str) -> Amounts | None:
        """Return CPU and memory of a node that no pod requests; None: unknown."""
        return self._view.unrequested(node)

    def hold(self, pod: LoadAwarePod, node: str) -> None:
        """Count a pod on a node."""
        self._view.assume(pod, node, now_s=self._now.mono_s, at_s=self._now.wall_ms / 1_000, planned=True)

    def release(self, uid: str) -> None:
        """Do not count a pod any more."""
        self._view.release(uid)


class Plans:
    """The plans of all groups. ``publish`` queues a record of a group; None: the group is forgotten."""

    def __init__(
        self, view: View, registry: Registry, replica: str, publish: Callable[[str, GangPlan | None], None]
    ) -> None:
        self._view, self._registry, self._replica, self._publish = view, registry, replica, publish
        self._count = 0
        self._others = 0
        """Plans put in force that this replica had not in view when it made its own."""
        self._holders: dict[str, Group] = {}
        """By uid: whose plan holds a place for a pod that may have been in another group before."""

    def propose(self, group: Group, standing: Standing, places: Mapping[str, str], now: Now) -> None:
        """Propose places for the pods of a group. It is in force when it is read back."""
        self._count += 1
        waiting_s = min([WAITING_S, *(one.waiting_s for one in standing.options)])
        plan = GangPlan(
            group=group.key,
            plan=f"{self._replica}/{now.wall_ms}/{self._count}",
            replica=self._replica,
            decided_ms=now.wall_ms,
            deadline_ms=now.wall_ms + 1_000 * waiting_s,
            gangs=standing.needs,
            places=written(places, self._registry.pods),
            satisfied=group.satisfied,
        )
        group.propose(plan, now.mono_s)
        group.others = self._others
        self._holders |= dict.fromkeys(group.places, group)
        self._publish(group.key, plan)

    def scarce(self, standing: Standing) -> Held | None:
        """Return which minResources of gangs without a bound pod all nodes together lack; None: none."""
        both = zip(standing.options, standing.needs, strict=True)
        least = [options.least_free for options, need in both if not need.bound]
        asked = Amounts(*(sum(amounts) for amounts in zip(NOTHING, *least, strict=True)))
        if asked == NOTHING:
            return None
        free = self._view.free
        short = [
            f"minResources asks for {wanted} {one.unit} of {one.name}, and all nodes together have {left}"
            for one, wanted, left in zip(RESOURCES, asked, free, strict=True)
            if wanted > left
        ]
        return Held(MIN_RESOURCES, "; ".join(short)) if short else None

    def hold(self, group: Group, pod: SchedulerPod, now: Now) -> None:
        """Hold the place of a pod that its group's plan has for it, unless it is held."""
        if not self._view.assumed(pod.uid):
            self._holders[pod.uid] = group
            Nodes(self._view, now).hold(pod.asked, group.places[pod.uid])

    def _release(self, group: Group, uid: str) -> None:
        """End the assumption of a pod, unless another group's plan holds its place now."""
        if self._holders.get(uid) is group:
            del self._holders[uid]
            self._view.release(uid)

    def amend(self, group: Group, places: Mapping[str, str], now: Now) -> None:
        """Propose other places for the plan in force."""
        assert group.plan is not None
        plan = replace(
            group.plan,
            decided_ms=now.wall_ms,
            places=written(places, self._registry.pods),
            satisfied=group.satisfied,
        )
        group.propose(plan, now.mono_s)
        self._publish(group.key, plan)

    def lose(self, group: Group, uids: Collection[str], why: str, now: Now) -> None:
        """Take pods out of the plan. With too few others a strict gang's plan ends: half of one holds no places."""
        for uid in uids:
            self._release(group, uid)
        places = {other: node for other, node in group.places.items() if other not in uids}
        found = self._registry.needs(group)
        if not isinstance(found, Held):
            options, needs = found
            counts = Counter({one.gang: one.bound for one in needs})
            for pod in self._registry.members(group):
                if pod.uid in places and pod.member is not None and not pod.node:
                    counts[pod.member.of.gang] += 1
            few = any(counts[one.gang] < one.least for one in needs)
            if few and not group.satisfied and any(one.mode == "Strict" for one in options):
                self.end(group, "broken", why, now)
                return
        self.amend(group, places, now)

    def end(self, group: Group, reason: str, why: str, now: Now) -> None:
        """Publish the end of the plan in force; it ends when that is read back."""
        if group.plan is not None and now.mono_s >= group.ending_s + PUBLISH_S:
            group.ending_s = now.mono_s
            self._publish(group.key, group.ended(group.plan, now.wall_ms, reason, why))

    def expire(self, group: Group, why: str, now: Now) -> None:
        """End the plan in force at its deadline, which every replica knows: no record is awaited."""
        assert group.plan is not None
        self.end(group, "expired", why, now)
        self._close(group, group.plan.plan)

    def _close(self, group: Group, plan: str) -> None:
        group.close(plan)
        if group.plan is not None and group.plan.plan == plan:
            self.drop_places(group)
            group.plan, group.due_s = None, -inf

    def take(self, group: Group, plan: GangPlan, now: Now) -> None:
        """Apply a record of a group, in the order of Kafka."""
        if not plan.plan or plan.plan in group.over:
            return
        if not plan.places:
            self._close(group, plan.plan)
        elif plan.deadline_ms <= now.wall_ms:
            self.abandon(group, plan, "it was read too late", now)
            self._close(group, plan.plan)
        elif group.plan is None or group.plan.plan == plan.plan:
            self._apply(group, plan, now)
        else:
            self.abandon(group, plan, "another plan of the group was first", now)

    def _apply(self, group: Group, plan: GangPlan, now: Now) -> None:
        """Put a plan in force; one of this replica only if it still fits beside those read since it was made."""
        own = group.proposed is not None and group.proposed.plan == plan.plan
        if own and group.plan is None and group.others == self._others:
            group.enforce(plan, now.mono_s)
            return
        if not own:
            self._others += 1
            self.drop_places(group)
        room, lost = Nodes(self._view, now), False
        members = {one.uid: one for one in self._registry.members(group)}
        for place in plan.places:
            pod = members.get(place.pod_uid)
            if pod is None or pod.node:
                continue
            room.release(pod.uid)
            lost |= own and isinstance(room.judged(asking(pod.asked, self._view.args), place.node), Refusal)
            room.hold(pod.asked, place.node)
            self._holders[pod.uid] = group
        if lost and group.plan is None:
            self.abandon(group, plan, "it does not fit any more", now)
        else:
            group.enforce(plan, now.mono_s)

    def abandon(self, group: Group, plan: GangPlan, why: str, now: Now) -> None:
        """Give up what this replica proposed, and keep the plan in force."""
        if group.proposed is None or group.proposed.plan != plan.plan:
            return
        kept = {} if group.plan is None else {one.pod_uid: one.node for one in group.plan.places}
        for uid in group.places:
            if kept.get(uid) != group.places[uid]:
                self._release(group, uid)
        if group.plan is None or group.plan.plan != plan.plan:
            group.close(plan.plan)
            self._publish(group.key, group.ended(plan, now.wall_ms, "abandoned", why))
        group.give_up(kept)
        group.pause(now.mono_s)

    def drop_places(self, group: Group) -> None:
        """End the assumptions of pods that are not bound."""
        for uid in group.places:
            pod = self._registry.pods.get(uid)
            if pod is None or not pod.node:
                self._release(group, uid)
            self._holders.pop(uid, None)
        group.give_up({})
