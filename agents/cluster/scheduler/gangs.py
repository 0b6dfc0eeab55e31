"""Gangs for the extender: their pods are held back until all have a place. Pure: callers pass the time.

A plan comes into force when it is read back from Kafka, whose order decides between replicas. docs/gangs.md has the
rules.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from slacktide.agents.cluster.scheduler.gang_group import (
    FORMING,
    INVALID,
    NEVER,
    NO_ROOM,
    OFFER_S,
    PLANNED,
    PROBING,
    TOO_LARGE,
    Group,
    Held,
    Now,
    Offer,
    Registry,
    Standing,
    Work,
    first_of_each_shape,
    is_gated,
)
from slacktide.agents.cluster.scheduler.gang_plans import PUBLISH_S, Nodes, Plans
from slacktide.agents.cluster.scheduler.pod import Member, SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.gang import GangNeed, GangPlan
from slacktide.streams.decisions.gang.membership import SCHEDULER, Kind, Options
from slacktide.streams.decisions.gang.plan import Candidate, Missed, planned
from slacktide.streams.decisions.load.pod_placement import Asking, Refusal, asking

TAKEOVER_S = 2.0
"""Then a replica carries on a plan of another one."""
ATTEMPT_S = 0.2
"""Least time between two attempts to plan a group: without the webhook each of its pods asks."""
RELEASE_S, WAKE_S = 5.0, 20.0
"""A pod that is still gated, or that nobody asked about, is released or woken again."""
REASON_S = 10.0
ASKED_S = 60.0
"""A kube-scheduler that asked within this time uses this replica."""
NAMED = 3
GONE_MAX = 10_000
AGAIN_S = 1.0
"""A kube-scheduler tries a nominated node alone, and within this time all nodes."""
SEEN_BY_ALL = (FORMING, INVALID)


class Gangs:
    """All gangs of the cluster.

    ``publish`` queues a record of a group; None: the group is forgotten. ``worded`` returns the reasons of nodes in
    words, by node.
    """

    def __init__(
        self,
        view: View,
        replica: str,
        publish: Callable[[str, GangPlan | None], None],
        worded: Callable[[Asking, Mapping[str, Refusal]], Mapping[str, str]],
    ) -> None:
        self.enabled = True
        """Whether pods of gangs are held back."""
        self.unplanned: list[SchedulerPod] = []
        """Pods bound without a plan, although their gang needs one, since this was last emptied."""
        self._view, self._replica, self._publish, self._worded = view, replica, publish, worded
        self._registry = Registry()
        self._plans = Plans(view, self._registry, replica, publish)
        self._groups: dict[str, Group] = {}
        self._gone: dict[str, None] = {}
        """Uids of deleted pods: a kube-scheduler may ask about one a moment later."""
        self._asked_s = -inf

    def changed(self, pod: SchedulerPod, now: Now) -> None:
        """Add or update a pod."""
        self._gone.pop(pod.uid, None)
        known = self._registry.pods.get(pod.uid)
        if pod.scheduler != SCHEDULER or not self._registry.take(pod):
            return  # of most pods nothing else is read
        group = self._group(pod)
        if not pod.node:
            if pod.uid in group.places:
                self._plans.hold(group, pod, now)
        elif pod.uid in group.places:
            group.satisfied = True
        elif known is not None and not known.node and group.held is not None and not group.satisfied:
            self.unplanned.append(pod)

    def whole(self, pods: Iterable[SchedulerPod], now: Now) -> None:
        """Replace all pods."""
        listed = {pod.key: pod for pod in pods}
        for pod in [one for one in self._registry.pods.values() if one.key not in listed]:
            self.gone(pod.key)
        for pod in listed.values():
            self.changed(pod, now)

    def gone(self, key: tuple[str, str]) -> None:
        """Remove a pod."""
        pod = self._registry.find(key)
        if pod is None:
            return
        self._gone[pod.uid] = None
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        group = self._group(pod)
        self._registry.gone(key)
        group.asked.pop(pod.uid, None)
        group.prompted.pop(pod.uid, None)
        group.alone.pop(pod.uid, None)
        group.satisfied &= self._registry.exists(group)

    def take_options(self, kind: Kind, gang: str, options: Options | None) -> None:
        """Add or update the options of a PodGroup; None: it was deleted."""
        for uid in self._registry.take_options(kind, gang, options):
            self._group(self._registry.pods[uid])
        if options is None:
            for group in self._groups.values():
                group.satisfied &= self._registry.exists(group)

    def holds(self, uid: str) -> bool:
        """Return whether a plan holds a place for the pod."""
        pod = self._registry.pods.get(uid)
        return pod is not None and uid in self._group(pod).places

    def fail(self, pod: SchedulerPod) -> None:
        """A pod could not be released or woken."""
        group = self._group(pod)
        group.prompted.pop(pod.uid, None)
        group.probed = NEVER

    def count(self) -> Counter[str]:
        """Return the number of groups by state: planned, or the reason for which they wait."""
        states = (PLANNED if one.plan else one.held.reason if one.held else "" for one in self._groups.values())
        return Counter(state for state in states if state)

    def ask(self, pod: SchedulerPod, nodes: Sequence[str], now: Now) -> Held | str | asyncio.Event:
        """Return why a pod must wait, or the node that is held for it; "": it takes any that fits.

        An Event: a plan is being written. Ask again once it is set.
        """
        self._asked_s = now.mono_s
        member, ours = pod.member, self.enabled and pod.scheduler == SCHEDULER and not self._view.dry_run
        if not ours or member is None or member.of.kind == "native":
            return ""
        if pod.uid in self._gone:
            return Held(FORMING, "it was deleted")
        if pod.uid not in self._registry.pods:
            self.changed(pod, now)
        group = self._group(pod)
        group.asked[pod.uid] = now.mono_s
        standing = None if group.proposed or group.plan else self._registry.standing(group)
        if isinstance(standing, Held) or (standing is not None and not standing.needs_plan):
            group.held = standing if isinstance(standing, Held) else None
            return group.held or ""
        if self._is_nominated_alone(group, pod, nodes, now):
            return Held(PROBING, f"only its nominated node {nodes[0]} was offered")
        is_news = self._keep_offer(group, member.shape, nodes, now)
        if standing is None:
            return self._planned(group, pod, nodes, now)
        if is_news:  # a part of the plan's work is done here: it must not take long
            self._view.survey(asking(pod.asked, self._view.args), nodes, now_s=now.mono_s)
        if (is_news or now.mono_s >= group.due_s) and now.mono_s >= group.attempt_s + ATTEMPT_S:
            group.held = self._attempt(group, standing, now)
        return group.held or group.settled

    def _is_nominated_alone(self, group: Group, pod: SchedulerPod, nodes: Sequence[str], now: Now) -> bool:
        """Return whether a kube-scheduler tries a pod's nominated node before all others.

        If it is refused, and no other one is left, it is offered alone again.
        """
        assert pod.member is not None
        if list(nodes) != [pod.member.nominated] or group.places.get(pod.uid) == pod.member.nominated:
            return False
        again = now.mono_s <= group.alone.get(pod.uid, -inf) + AGAIN_S
        group.alone[pod.uid] = now.mono_s
        return not again

    def _keep_offer(self, group: Group, shape: bytes, nodes: Sequence[str], now: Now) -> bool:
        """Keep the nodes that a kube-scheduler leaves for a shape. Return whether they differ from those before."""
        fresh = {other: one for other, one in group.offers.items() if now.mono_s <= one.at_s + OFFER_S}
        group.offers = {**fresh, shape: Offer(tuple(nodes), now.mono_s)}
        return shape not in fresh or fresh[shape].nodes != group.offers[shape].nodes

    def _attempt(self, group: Group, standing: Standing, now: Now) -> Held | None:
        """Propose a plan, or return why there is none."""
        lacking = [one.key[1] for one in standing.waiting if not group.is_offered(one, now.mono_s)]
        if lacking:
            return Held(PROBING, f"the kube-scheduler has not offered nodes for {', '.join(lacking[:NAMED])} yet")
        group.attempt_s, group.tried = now.mono_s, self._view.last_change
        if scarce := self._plans.scarce(standing):
            group.pause(now.mono_s)
            return scarce
        candidates = [_candidate(one, group.offers[_member(one).shape].nodes) for one in standing.waiting]
        needs = {one.gang: one.needed for one in standing.needs}
        found = planned(candidates, needs, Nodes(self._view, now), self._view.args)
        if isinstance(found, Missed):
            group.pause(now.mono_s)
            return self._missed(standing.needs, found, shapes=len({one.shape for one in candidates}))
        self._plans.propose(group, standing, found, now)
        return None

    def _missed(self, needs: Iterable[GangNeed], missed: Missed, *, shapes: int) -> Held:
        counts = [
            f"places for {missed.placed.get(one.gang, 0)} of {one.needed} pods of gang {one.gang}"
            for one in needs
            if missed.placed.get(one.gang, 0) < one.needed
        ]
        text = "; ".join(counts[:NAMED]) + (" (greedy order)" if shapes > 1 else "")
        if missed.first is None:
            return Held.cut(TOO_LARGE, f"{text}; there are too many pods and nodes to judge at once")
        words = self._worded(asking(missed.first.pod, self._view.args), missed.refused)
        why = [f"{count} nodes: {reason}" for reason, count in Counter(words.values()).most_common(NAMED)]
        pod = missed.first.pod.pod
        return Held.cut(
            NO_ROOM, f"{text}; none for {pod.namespace}/{pod.name}: {'; '.join(why) or 'no node was offered'}"
        )

    def _planned(self, group: Group, pod: SchedulerPod, nodes: Sequence[str], now: Now) -> Held | str | asyncio.Event:
        """Return the node that is held for a pod. If the node no longer takes it, look for another one."""
        node = group.places.get(pod.uid)
        if group.proposed is not None:
            return Held(PLANNED, "the plan of its gang is being written") if node is None else group.settled
        if group.ending_s > -inf:
            return Held(PLANNED, "the plan of its gang ends")
        if node is None:
            return Held(PLANNED, "other pods of its gang have places; it is judged when one of them is bound")
        lost = self._lost(group, pod, nodes, now)
        return self._moved(group, lost, nodes, now) if lost else node

    def _lost(self, group: Group, pod: SchedulerPod, nodes: Sequence[str], now: Now) -> list[SchedulerPod]:
        """Return pods whose node no longer takes them: this one, and before anything is bound others of its shape."""
        offered, lost = set(nodes), list[SchedulerPod]()
        if not group.satisfied:
            lost = [
                one
                for one in self._registry.members(group)
                if one.uid != pod.uid and not one.node and one.uid in group.places
                and _member(one).shape == _member(pod).shape and group.places[one.uid] not in offered
            ]  # fmt: skip
        node, room = group.places[pod.uid], Nodes(self._view, now)
        room.release(pod.uid)
        if node not in offered or isinstance(room.judged(asking(pod.asked, self._view.args), node), Refusal):
            return [pod, *lost]
        room.hold(pod.asked, node)
        return lost

    def _moved(self, group: Group, lost: list[SchedulerPod], nodes: Sequence[str], now: Now) -> Held | asyncio.Event:
        """Find other nodes for pods of a plan, or take them out of it."""
        room, uids = Nodes(self._view, now), [one.uid for one in lost]
        for uid in uids:
            room.release(uid)
        taken = {node for uid, node in group.places.items() if uid not in uids}
        candidates = [
            _candidate(one, [node for node in nodes if node not in taken or not _member(one).apart]) for one in lost
        ]
        needs = Counter(one.gang for one in candidates)
        found = planned(candidates, needs, room, self._view.args)
        if isinstance(found, Missed):
            self._plans.lose(group, uids, f"no node takes {lost[0].key[1]} in place of {group.places[uids[0]]}", now)
            missing = [GangNeed(gang=gang, least=1, exist=1, bound=0, needed=count) for gang, count in needs.items()]
            return self._missed(missing, found, shapes=1)
        self._plans.amend(group, {**group.places, **found}, now)
        return group.settled

    def read(self, key: str, plan: GangPlan | None, now: Now) -> None:
        """Apply a record, in the order of Kafka; None: the group was forgotten."""
        if plan is None:
            return
        group = self._groups.setdefault(key, Group(key))
        group.satisfied |= plan.satisfied and self._registry.exists(group)
        if not plan.plan:
            group.published, group.published_s = Held(plan.reason, plan.why), now.mono_s
        self._plans.take(group, plan, now)

    def tick(self, now: Now) -> Work:
        """Return what to write now. Call it every half second."""
        work, waiting = Work([], []), []
        for group in list(self._groups.values()):
            if not any(self._registry.members(group)):
                self._fade(group, now)
            elif group.proposed is not None:
                if now.mono_s > group.proposed_s + PUBLISH_S:
                    self._plans.abandon(group, group.proposed, f"it was not read back within {PUBLISH_S:g} s", now)
            elif group.plan is not None:
                self._carry(group, group.plan, work, now)
            elif now.mono_s >= group.due_s:
                waiting.append(group)
        for group in sorted(waiting, key=self._registry.order):
            self._wait(group, work, now)
        return work

    def _fade(self, group: Group, now: Now) -> None:
        if group.plan is not None:
            self._plans.end(group, "deleted", "its pods are gone", now)
        elif group.is_idle(now.mono_s):
            self._plans.drop_places(group)
            self._publish(group.key, None)
            del self._groups[group.key]

    def _carry(self, group: Group, plan: GangPlan, work: Work, now: Now) -> None:
        """Release the pods of a plan, and end it once all are bound, or its time is over."""
        known = [one for one in self._registry.members(group) if one.uid in group.places]
        unbound = [one for one in known if not one.node]
        group.satisfied |= len(unbound) < len(known)
        if plan.replica != self._replica and now.mono_s < group.read_s + TAKEOVER_S:
            return
        if now.wall_ms >= plan.deadline_ms:
            self._plans.expire(group, f"{len(unbound)} of its pods were not bound in time", now)
        elif len(known) < len(group.places):
            gone = group.places.keys() - {one.uid for one in known}
            self._plans.lose(group, gone, f"{len(gone)} pods with a place are gone", now)
        elif not unbound:
            self._plans.end(group, "bound", "", now)
        elif group.ending_s == -inf:
            for pod in unbound:
                self._prompt(group, pod, work, now)

    def _prompt(self, group: Group, pod: SchedulerPod, work: Work, now: Now) -> None:
        """Release a gated pod, and wake another one that a kube-scheduler has not asked about."""
        prompted, asked = (since.get(pod.uid, -inf) for since in (group.prompted, group.asked))
        if is_gated(pod):
            if now.mono_s >= prompted + RELEASE_S:
                work.release.append(pod)
                group.prompted[pod.uid] = now.mono_s
        elif max(prompted, asked) <= group.read_s or now.mono_s >= max(prompted, asked) + WAKE_S:
            work.wake.append(pod)
            group.prompted[pod.uid] = now.mono_s

    def _wait(self, group: Group, work: Work, now: Now) -> None:
        """Let one pod of each shape ask a kube-scheduler; plan when nodes are known for all."""
        standing = self._registry.standing(group)
        if self._view.dry_run or (isinstance(standing, Standing) and not standing.needs_plan):
            group.held = None
            for pod in filter(is_gated, self._registry.waiting(group)):
                self._prompt(group, pod, work, now)
        elif isinstance(standing, Held):
            group.held = standing
            self._publish_reason(group, now)
        else:
            self._probe(group, standing, work, now)
            self._publish_reason(group, now)

    def _probe(self, group: Group, standing: Standing, work: Work, now: Now) -> None:
        asked, change = now.mono_s < self._asked_s + ASKED_S, self._view.last_change
        unknown = [one for one in first_of_each_shape(standing.waiting) if not group.is_offered(one, now.mono_s)]
        if not unknown:
            if change != group.tried and asked:
                group.held = self._attempt(group, standing, now)
        elif change != group.probed or group.probed == NEVER:
            work.release.extend(filter(is_gated, unknown))
            work.wake.extend(one for one in unknown if asked and not is_gated(one))
            group.probed = change
            if group.held is None or group.held.reason != NO_ROOM:
                group.held = Held(PROBING, "the kube-scheduler has not offered nodes yet")
            group.pause(now.mono_s)

    def _publish_reason(self, group: Group, now: Now) -> None:
        """Publish why a group waits; what only a replica sees that is asked, is published by that one."""
        held = group.held
        if held is None or held == group.published or now.mono_s < group.published_s + REASON_S:
            return
        if held.reason not in SEEN_BY_ALL and now.mono_s >= self._asked_s + ASKED_S:
            return
        group.published, group.published_s = held, now.mono_s
        found = self._registry.needs(group)
        needs = [] if isinstance(found, Held) else found[1]
        self._publish(
            group.key,
            GangPlan(
                group=group.key, decided_ms=now.wall_ms, gangs=needs, satisfied=group.satisfied,
                reason=held.reason, why=held.text, waiting=self._registry.named(group),
            ),
        )  # fmt: skip

    def _group(self, pod: SchedulerPod) -> Group:
        key = self._registry.key_of(pod)
        return self._groups.setdefault(key, Group(key))


def _member(pod: SchedulerPod) -> Member:
    assert pod.member is not None
    return pod.member


def _candidate(pod: SchedulerPod, offer: Sequence[str]) -> Candidate:
    member = _member(pod)
    return Candidate(pod=pod.asked, gang=member.of.gang, shape=member.shape, offer=offer, apart=member.apart)
