"""Responds to a kube-scheduler by the extender protocol.

Why nodes refuse a pod, and which NUMA zones it gets, is worded here. A kube-scheduler groups equal messages, and an
Event holds 1,024 characters. So nodes above the same threshold share one message with the range of their use.

Source: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go. JSON names equal field names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.pod import SchedulerPod, parsed
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.kubernetes.objects import Pod
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.policy.configmap import key_of
from slacktide.schemas.text import answer_of
from slacktide.schemas.zones import ZONES_STALE_S
from slacktide.streams.decisions.cores.placement import CoresGiven
from slacktide.streams.decisions.cores.take import written
from slacktide.streams.decisions.load.load_aware_estimator import ANNOTATION, RESOURCES
from slacktide.streams.decisions.load.load_aware_scheduling import Check
from slacktide.streams.decisions.load.pod_placement import Asking, Choice, Refusal
from slacktide.streams.decisions.numa.filter import Lack
from slacktide.streams.decisions.numa.placement import STALE, UNREAD, Reservation, ZonesGiven, ZonesRefusal
from slacktide.streams.decisions.numa.topology import CPU, Amounts, is_memory

NAMED = 5
ANSWERED = 10_000
JUST_S = 1.0
"""How long a result is valid: a kube-scheduler calls prioritize milliseconds after filter, or never."""


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
        pod, nodes = _read(body)
        choice = self._choose(pod, nodes).choice
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

    def _choose(self, pod: SchedulerPod, nodes: list[str]) -> _Judged:
        """Judge the pod, and publish the placement."""
        now_s, uid, dry_run = mono_s(self._clock), pod.uid, self._view.dry_run
        choice = self._view.choose(pod.asked, nodes, now_s=now_s)
        placement = _placement(pod, choice, self._clock.wall_ms(), dry_run=dry_run)
        self._publish(placement)
        for one in placement.refused:
            metrics.REFUSALS.labels(one.reason).inc(one.count)
        self._answered.pop(uid, None)
        if dry_run:
            self._note_answered(uid)
        if choice.willing or dry_run:
            self.waiting.accept(uid)
        elif choice.refused:
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
            at_s = self._clock.wall_ms() / 1000
            self._view.assume(pod.asked, best.name, now_s=mono_s(self._clock), at_s=at_s)


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


RESERVED_NAMED = 3
_MIB = 2**20


def lacking_zones(lacking: Mapping[str, ZonesRefusal]) -> str:
    """Return what the pod requests of zones, the closest node, and whose reservations count there."""
    node = min(lacking, key=lambda one: (-lacking[one].lacks[0].free, one))
    refusal = lacking[node]
    lacks = [_of_lack(lack, before) for lack, before in zip(refusal.lacks, refusal.free_before, strict=True)]
    return f"closest is node {node}: {'; '.join([*lacks, *_reserved(refusal.reservations)])}"


def given_zones(given: ZonesGiven) -> str:
    """Return the zones that a kubelet would assign, their free resources before and after, and counted reservations."""
    parts = []
    for one in given.requests:
        name = "pod" if one.container is None else f"container {one.container}"
        ids = f"zone{'' if len(one.zones) == 1 else 's'} {'+'.join(map(str, one.zones))}" if one.zones else "any zone"
        parts.append(f"{name} requests {_zone_amounts(one.request)}, {ids}")
    for zone, before in given.before.items():
        both = (
            (name, _zone_amount(name, free), _zone_amount(name, given.after[zone][name]))
            for name, free in before.items()
        )
        parts.append(f"zone {zone}: {', '.join(f'{name} {free} free, {after} with it' for name, free, after in both)}")
    if given.unaligned:
        parts.append(f"would not be aligned: {', '.join(_of_lack(lack, lack.free) for lack in given.unaligned)}")
    if given.moved:
        moved = ", ".join(given.moved)
        parts.append(f"the kubelet rejects {moved} if it reuses an init container's CPUs, which are in other zones")
    if given.not_charged:
        parts.append(f"overhead {_zone_amounts(given.not_charged)} is counted in no zone")
    return "; ".join([*parts, *_reserved(given.reservations)])


def _reserved(reservations: Sequence[Reservation]) -> Iterator[str]:
    if reservations:
        names = [f"{one.name} ({_zone_amounts(one.reserved)})" for one in reservations[:RESERVED_NAMED]]
        more = len(reservations) - len(names)
        yield f"reserved for {', '.join(names)}{f' and {more} more' if more else ''} until its zones show them"


def _of_lack(lack: Lack, before: int) -> str:
    asks = f"pod requests {lack.resource} {_zone_amount(lack.resource, lack.asked)}"
    if lack.best_zone is None:
        return f"{asks}, but no zone has this resource"
    free = f"zone {lack.best_zone} has {_zone_amount(lack.resource, lack.free)} free"
    return f"{asks}, {free}" + (f" of {_zone_amount(lack.resource, before)}" if before != lack.free else "")


def _zone_amounts(amounts: Amounts) -> str:
    return " ".join(f"{name} {_zone_amount(name, amount)}" for name, amount in sorted(amounts.items())) or "nothing"


def _zone_amount(resource: str, amount: int) -> str:
    """In Kubernetes' notation; devices as a count."""
    if resource == CPU:
        return f"{amount}m"
    return f"{amount // _MIB}Mi" if is_memory(resource) else str(amount)


WORDS = {
    "stale": "its agent is silent",
    "frozen": "its figures are not fresh",
    "mem_over_line": "best-effort pods are being evicted from it, because memory is short",
    "evicting": "evicted pods are still terminating on it",
    STALE: f"its agent has not published NUMA zones for {ZONES_STALE_S:.0f} s",
    UNREAD: "its NUMA zones, or the allocations of pods in them, cannot be read",
}
"""For reasons that are not user-facing terms."""
PERCENT = " percent"
"""A kube-scheduler uses a message as a format string for its Event, so "%" would garble it."""


def worded(pod: Asking, refused: Mapping[str, Refusal]) -> dict[str, str]:
    """Message by node, in the given order."""
    alike: dict[tuple[object, ...], dict[str, Refusal]] = {}
    for node, one in refused.items():
        alike.setdefault(_kind(one), {})[node] = one
    texts = {kind: _text(pod, some) for kind, some in alike.items()}
    return {node: texts[_kind(one)] for node, one in refused.items()}


def _kind(one: Refusal) -> tuple[object, ...]:
    limit = None if one.check is None else one.check.limit.threshold_pct
    return one.reason, one.own, limit


def _text(pod: Asking, refused: Mapping[str, Refusal]) -> str:
    alike = list(refused.values())
    first = alike[0]
    checks = [one.check for one in alike if one.check is not None]
    if checks:
        return f"{first.reason}: {_over(pod, first, checks)}"
    if first.short is not None:
        most = max(one.short.left for one in alike if one.short is not None)
        resource = first.short.resource
        asks, left = _amount(resource, first.short.wanted), _amount(resource, most)
        return f"{first.reason}: pod requests {asks}, but only {left} is free"
    cores = [one.cores for one in alike if one.cores is not None]
    if cores:
        return f"{first.reason}: {max(cores, key=lambda one: one.free_count).text}"
    lacking = {node: one.zones for node, one in refused.items() if one.zones is not None and one.zones.lacks}
    if lacking:
        return f"{first.reason}: {lacking_zones(lacking)}"
    return WORDS.get(first.reason, first.reason)


def _over(pod: Asking, first: Refusal, checks: Sequence[Check]) -> str:
    limit, counts = checks[0].limit, checks[0].pod
    name = RESOURCES[limit.resource].name
    where = f"the node's annotation {ANNOTATION}" if first.own else key_of("placement")
    used = sorted(one.limit.existing * 100 // one.limit.allocatable for one in checks)
    uses = str(used[0]) if used[0] == used[-1] else f"{used[0]}-{used[-1]}"
    because = pod.candidate.estimate.because[limit.resource]
    unit = RESOURCES[limit.resource].unit
    asks = max(int(because.terms[f"request_{unit}"]), int(because.terms[f"limit_{unit}"]))
    share = "it requests none"
    if because.bound == "scaled":
        share = (
            f"estimatedScalingFactors.{name} {because.terms['factor_pct']}{PERCENT} of {_amount(limit.resource, asks)}"
        )
    elif because.bound == "capped":
        share = "its limit"
    return (
        f"over {where} {first.key}.{name} {limit.threshold_pct}{PERCENT}: node uses {uses}{PERCENT} "
        f"with the pods assigned to it, pod counts {_amount(limit.resource, counts)} ({share})"
    )


def _amount(resource: int, amount: int) -> str:
    """In Kubernetes' notation."""
    return f"{amount}m" if RESOURCES[resource].unit == "milli" else f"{-(-amount // _MIB)}Mi"
