"""Responds to a kube-scheduler by the extender protocol.

Source: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go. JSON names equal field names.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.gang_group import PLANNED, Held, Now
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.pod import SchedulerPod, parsed
from slacktide.agents.cluster.scheduler.reservations import Reservations
from slacktide.agents.cluster.scheduler.view import BINDING_S, View
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.cluster.scheduler.words import given_zones, worded
from slacktide.agents.kubernetes.objects import Pod
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.text import answer_of
from slacktide.streams.decisions.cores.placement import CoresGiven
from slacktide.streams.decisions.cores.take import written
from slacktide.streams.decisions.gang.plan import lacking
from slacktide.streams.decisions.load.pod_placement import Choice, Refusal, asking, compare

NAMED = 5
ANSWERED = 10_000
JUST_S = 1.0
"""How long a result is valid: a kube-scheduler calls prioritize milliseconds after filter, or never."""
PLAN_S = 0.3
"""How long a response waits for a gang's plan to be written."""
NATIVE_S = 30.0
"""A kube-scheduler takes back the places of a whole gang of Kubernetes' own API without a word to its extender."""


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a kube-scheduler."""

    pod: Pod = msgspec.field(name="Pod")
    nodes: list[str] | None = msgspec.field(name="NodeNames", default=None)


class _Judged(NamedTuple):
    pod: SchedulerPod
    choice: Choice
    at_s: float


class _Uid(msgspec.Struct, frozen=True):
    uid: str


class _Metadata(msgspec.Struct, frozen=True):
    metadata: _Uid


class _Again(msgspec.Struct, frozen=True, kw_only=True):
    """The uid of a pod that was filtered a moment ago; the rest need not be parsed."""

    pod: _Metadata = msgspec.field(name="Pod")
    nodes: list[str] = msgspec.field(name="NodeNames")


class _Priority(msgspec.Struct, frozen=True, gc=False):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


_encoder = msgspec.json.Encoder()


class Answers:
    """Filter and prioritize. A pod is judged once, in filter; prioritize returns the scores.

    Prioritize alone, or much later, judges the pod again. Each judgement is published.
    """

    def __init__(
        self,
        view: View,
        publish: Callable[[PodPlacement], None],
        clock: Clock,
        gangs: Gangs,
        reservations: Reservations,
    ) -> None:
        self.waiting = Waiting(view)
        """Pods that every node refused."""
        self.gangs, self.reservations = gangs, reservations
        self._view, self._publish, self._clock = view, publish, clock
        self._judged: OrderedDict[str, _Judged] = OrderedDict()
        self._answered: OrderedDict[str, None] = OrderedDict()

    def answered(self, uid: str) -> bool:
        """Return whether this replica found a node for the pod in its last request."""
        return uid in self._answered

    def filter(self, body: bytes) -> bytes | Awaitable[bytes]:
        """Filter the nodes, with reasons for those refused. The pod of a gang may wait for the gang's plan.

        Raises:
            BadMessageError: the request or its pod is invalid.
        """
        pod, nodes = _read(body)
        now = Now.by(self._clock)
        held = self.reservations.ask(pod, nodes, now) or self.gangs.ask(pod, nodes, now)
        if isinstance(held, asyncio.Event):
            return self._planned(pod, nodes, held)
        return self._filtered(pod, nodes, held)

    async def _planned(self, pod: SchedulerPod, nodes: list[str], settled: asyncio.Event) -> bytes:
        """Wait a moment for the plan: a kube-scheduler does nothing else meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PLAN_S):
                await settled.wait()
        held = self.gangs.ask(pod, nodes, Now.by(self._clock))
        if isinstance(held, asyncio.Event):
            held = Held(PLANNED, "the plan of its gang is being written")
        return self._filtered(pod, nodes, held)

    def _filtered(self, pod: SchedulerPod, nodes: list[str], held: Held | str) -> bytes:
        choice = self._choose(pod, nodes, held).choice
        if len(choice.willing) == 1:  # a kube-scheduler skips prioritize for a single node
            self._assume(pod, choice)
        if self._view.dry_run:
            all_pass = {"NodeNames": nodes, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
            return _encoder.encode(all_pass)
        return _encoder.encode(
            {
                "NodeNames": choice.names,
                "FailedNodes": {},
                # Such nodes would accept the pod as they are. Preemption finds no victims there, which a kube-scheduler
                # reports as an error.
                "FailedAndUnresolvableNodes": {
                    node: f"slacktide: {why}" for node, why in worded(choice.pod, choice.refused).items()
                },
                "Error": "",
            }
        )

    def prioritize(self, body: bytes) -> bytes:
        """Score the nodes from 0 to 10. Raises BadMessageError if the request or its pod is invalid."""
        if self._view.dry_run:  # filter has judged the pod
            return _encoder.encode([_Priority(node, 0) for node in _read(body)[1]])
        judged = self._just_judged(body)
        pod, choice, _ = judged or self._choose(*_read(body))
        self._assume(pod, choice)
        ranked = [_Priority(node, level) for node, level in zip(choice.names, choice.levels, strict=True)]
        # Without a filter call all nodes are scored.
        refused = [] if judged else [_Priority(node, 0) for node in choice.refused]
        return _encoder.encode(ranked + refused)

    def _just_judged(self, body: bytes) -> _Judged | None:
        """Return the filter's result; None: too old, or another plugin has removed nodes since."""
        try:
            again: _Again = answer_of(body, _Again, where="")
        except TextError:
            return None  # the full parser reports the error
        judged = self._judged.pop(again.pod.metadata.uid, None)
        if judged is None or mono_s(self._clock) > judged.at_s + JUST_S:
            return None
        names = judged.choice.names
        return judged if names == again.nodes or set(names) == set(again.nodes) else None

    def _chosen(self, pod: SchedulerPod, nodes: list[str], held: Held | str, now_s: float) -> Choice:
        """Judge the nodes for a pod. ``held``: why its gang holds it back, or the node held for it; "": neither."""
        if isinstance(held, Held):
            refusal = Refusal(held.reason, text=held.text)
            return compare(asking(pod.asked, self._view.args), dict.fromkeys(nodes, refusal), [], self._view.args)
        if held:
            choice = self._view.choose(pod.asked, [held], now_s=now_s)
            refusal = Refusal(PLANNED, text=f"node {held} is held for it")
            refused = {node: refusal for node in nodes if node != held}
        else:
            refused = self._planned_full(pod, nodes, now_s)
            choice = self._view.choose(pod.asked, [one for one in nodes if one not in refused], now_s=now_s)
        return replace(choice, refused={**choice.refused, **refused}) if refused else choice

    def _planned_full(self, pod: SchedulerPod, nodes: list[str], now_s: float) -> dict[str, Refusal]:
        """Return nodes on which planned pods and placeholders leave too little: a kube-scheduler may not count them."""
        self._view.expire(now_s)
        self._view.release(pod.uid)
        held = self._view.planned.keys() | self.reservations.rooms
        planned = [node for node in nodes if node in held] if held else []
        found = {node: lacking(pod.asked, self._view.unrequested(node)) for node in planned}
        return {node: refusal for node, refusal in found.items() if refusal is not None}

    def _choose(self, pod: SchedulerPod, nodes: list[str], held: Held | str = "") -> _Judged:
        """Judge the pod, and publish the placement."""
        now_s, uid, dry_run = mono_s(self._clock), pod.uid, self._view.dry_run
        choice = self._chosen(pod, nodes, held, now_s)
        placement = _placement(pod, choice, self._clock.wall_ms(), dry_run=dry_run)
        self._publish(placement)
        for one in placement.refused:
            metrics.REFUSALS.labels(one.reason).inc(one.count)
        self._answered.pop(uid, None)
        if dry_run:
            self._note_answered(uid)
        if choice.willing or dry_run:
            self.waiting.accept(uid)
        elif choice.refused and not held:
            self.waiting.refuse(pod, choice.pod, choice.refused, now_s=now_s, decided_ms=placement.decided_ms)
        # Results of pending pods go first: nobody prioritizes them, and each has all nodes.
        while self._judged and next(iter(self._judged.values())).at_s < now_s - JUST_S:
            self._judged.popitem(last=False)
        self._judged.pop(uid, None)
        judged = self._judged[uid] = _Judged(pod, choice, now_s)
        return judged

    def _note_answered(self, uid: str) -> None:
        self._answered[uid] = None
        while len(self._answered) > ANSWERED:
            self._answered.popitem(last=False)

    def _assume(self, pod: SchedulerPod, choice: Choice) -> None:
        """Count the pod on its best node immediately: the watch shows the binding after later requests.

        Other plugins may choose another node; the pod counts there once its binding is seen. In a dry run only these
        choose.
        """
        if self._view.dry_run:
            return
        for best in choice.best(1):
            self._note_answered(pod.uid)
            now_s, at_s = mono_s(self._clock), self._clock.wall_ms() / 1000
            native = pod.member is not None and pod.member.of.kind == "native"
            binding_s = NATIVE_S if native else BINDING_S
            self._view.assume(pod.asked, best.name, now_s=now_s, at_s=at_s, binding_s=binding_s)


def _read(body: bytes) -> tuple[SchedulerPod, list[str]]:
    try:
        question: _Question = answer_of(body, _Question, where="")
    except TextError as exc:
        raise BadMessageError("ExtenderArgs", str(exc)) from exc
    if question.nodes is None:
        raise BadMessageError(
            "ExtenderArgs",
            "NodeNames is null: set nodeCacheCapable: true for this extender in the kube-scheduler's configuration",
        )
    return parsed(question.pod), question.nodes


def _placement(asked: SchedulerPod, choice: Choice, now_ms: int, *, dry_run: bool) -> PodPlacement:
    pod = asked.asked.pod
    why = worded(choice.pod, choice.refused)
    by_reason: dict[tuple[str, str], list[str]] = {}
    for node, refusal in choice.refused.items():
        by_reason.setdefault((refusal.reason, why[node]), []).append(node)
    return PodPlacement(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        decided_ms=now_ms,
        asked=len(choice.willing) + len(choice.refused),
        passed=len(choice.willing),
        refused=[
            RefusingNodes(reason=reason, why=words, count=len(nodes), nodes=nsmallest(NAMED, nodes))
            for (reason, words), nodes in sorted(by_reason.items(), key=lambda one: (-len(one[1]), one[0]))
        ],
        best=[
            RankedNode(
                node=one.name,
                level=one.level,
                score_permille=one.score_permille,
                bound=one.bound,
                terms=one.terms,
                zones="" if one.zones is None else given_zones(one.zones),
                cores=written(one.cores.holder.cpus) if isinstance(one.cores, CoresGiven) else "",
            )
            for one in choice.best(NAMED)
        ],
        dry_run=dry_run,
    )
