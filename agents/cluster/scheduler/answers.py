"""Responds to a kube-scheduler by the extender protocol, and publishes placements without delaying responses.

Source: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go. JSON names equal field names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, NamedTuple

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.pod import SchedulerPod, parsed
from slacktide.agents.cluster.scheduler.refusals import given_zones, worded
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.publisher import Outbox
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.text import answer_of
from slacktide.schemas.topics import DEAD_LETTER, PLACEMENT
from slacktide.streams.decisions.load.pod_placement import Choice
from slacktide.streams.records import Out, event

NAMED = 5
ANSWERED = 10_000
JUST_S = 1.0
"""How long a result is valid: a kube-scheduler calls prioritize milliseconds after filter, or never."""


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a kube-scheduler."""

    pod: dict[str, Any] = msgspec.field(name="Pod")
    nodes: list[str] | None = msgspec.field(name="NodeNames", default=None)


@dataclass(frozen=True, slots=True)
class _Asked:
    pod: SchedulerPod
    nodes: list[str]


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

    def __init__(self, view: View, publish: Callable[[PodPlacement], None], clock: Clock) -> None:
        self.waiting = Waiting(view)
        """Pods that every node refused."""
        self._view, self._publish, self._clock = view, publish, clock
        self._judged: OrderedDict[str, _Judged] = OrderedDict()
        self._answered: OrderedDict[str, None] = OrderedDict()

    def answered(self, uid: str) -> bool:
        """Return whether this replica found a node for the pod in its last request."""
        return uid in self._answered

    def filter(self, body: bytes) -> bytes:
        """Filter the nodes, with reasons for those refused.

        Raises:
            BadMessageError: the request or its pod is invalid.
        """
        asked = _read(body)
        choice = self._choose(asked).choice
        if len(choice.willing) == 1:  # a kube-scheduler skips prioritize for a single node
            self._assume(asked.pod, choice)
        if self._view.dry_run:
            all_pass = {"NodeNames": asked.nodes, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
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
            return _encoder.encode([_Priority(node, 0) for node in _read(body).nodes])
        judged = self._just_judged(body)
        pod, choice, _ = judged or self._choose(_read(body))
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

    def _choose(self, asked: _Asked) -> _Judged:
        """Judge the pod, and publish the placement."""
        now_s = mono_s(self._clock)
        choice = self._view.choose(asked.pod.asked, asked.nodes, now_s=now_s)
        dry_run = self._view.dry_run
        placement = _placement(asked.pod, choice, self._clock.wall_ms(), dry_run=dry_run)
        self._publish(placement)
        for one in placement.refused:
            metrics.REFUSALS.labels(one.reason).inc(one.count)
        self._answered.pop(asked.pod.uid, None)
        if dry_run:
            self._note_answered(asked.pod.uid)
        if choice.willing or dry_run:
            self.waiting.accept(asked.pod.uid)
        elif choice.refused:
            self.waiting.refuse(asked.pod, choice.pod, choice.refused, now_s=now_s, decided_ms=placement.decided_ms)
        self._let_go(now_s - JUST_S)
        self._judged.pop(asked.pod.uid, None)
        judged = self._judged[asked.pod.uid] = _Judged(asked.pod, choice, now_s)
        return judged

    def _note_answered(self, uid: str) -> None:
        self._answered[uid] = None
        while len(self._answered) > ANSWERED:
            self._answered.popitem(last=False)

    def _let_go(self, before_s: float) -> None:
        """Drop old results. Those of pending pods go first: nobody prioritizes them, and each has all nodes."""
        while self._judged and next(iter(self._judged.values())).at_s < before_s:
            self._judged.popitem(last=False)

    def _assume(self, pod: SchedulerPod, choice: Choice) -> None:
        """Count the pod on its best node immediately: the watch shows the binding after later requests.

        Other plugins may choose another node; the pod counts there once its binding is seen. In a dry run only these
        choose.
        """
        if self._view.dry_run:
            return
        for best in choice.best(1):
            self._note_answered(pod.uid)
            at_s = self._clock.wall_ms() / 1000
            self._view.assume(pod.asked, best.name, now_s=mono_s(self._clock), at_s=at_s)


def _read(body: bytes) -> _Asked:
    try:
        question: _Question = answer_of(body, _Question, where="")
    except TextError as exc:
        raise BadMessageError("ExtenderArgs", str(exc)) from exc
    if question.nodes is None:
        raise BadMessageError(
            "ExtenderArgs",
            "NodeNames is null: set nodeCacheCapable: true for this extender in the kube-scheduler's configuration",
        )
    return _Asked(parsed(question.pod), question.nodes)


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
            )
            for one in choice.best(NAMED)
        ],
        dry_run=dry_run,
    )


SOURCE = "scheduler"
AGAIN_MS = 60_000
"""An unchanged placement of a pending pod is published at most once in this time."""
REMEMBERED = 10_000
"""Pending pods for which that applies; others are published at each request."""


class Placements(Outbox):
    """Queues placements and dead letters.

    Close it at shutdown: without the rest of the placements, another replica would report pods.
    """

    def __init__(self, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        topics, dropped = (PLACEMENT.name, DEAD_LETTER.name), metrics.DROPPED_PLACEMENTS.inc
        super().__init__(bootstrap, topics, now_ms, source=SOURCE, acks="1", dropped=dropped)
        self._waits: OrderedDict[str, tuple[object, int]] = OrderedDict()

    def publish(self, placement: PodPlacement) -> None:
        """Queue a placement."""
        if not self._is_published(placement):
            self.put(_out(placement))

    def _is_published(self, placement: PodPlacement) -> bool:
        uid = placement.pod_uid
        if placement.passed:
            self._waits.pop(uid, None)
            return False
        why = tuple((one.reason, one.count) for one in placement.refused)
        before, published_ms = self._waits.get(uid, (None, 0))
        if before == why and placement.decided_ms < published_ms + AGAIN_MS:
            return True
        self._waits.pop(uid, None)
        self._waits[uid] = why, placement.decided_ms
        while len(self._waits) > REMEMBERED:
            self._waits.popitem(last=False)
        return False


def _out(placement: PodPlacement) -> Out:
    uid = placement.pod_uid
    event_id, at_ms = f"placement/{uid}/{placement.decided_ms}", placement.decided_ms
    return event(PLACEMENT.name, uid, encode(placement), source=SOURCE, event_id=event_id, event_ms=at_ms)
