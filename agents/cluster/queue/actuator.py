"""Starts and stops objects as the queue decided, and publishes the outcomes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.work import Answer, Kind, Look, Work, Write, due, ending, merged
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Json, PodStatus
from slacktide.agents.kubernetes.resource import (
    CONFLICT,
    NOT_FOUND,
    PODS,
    ApiAwayError,
    ApiError,
    ApiRefusedError,
    IgnoreStatus,
)
from slacktide.schemas.errors import TEXT_CHARS_MAX, LogError, failure
from slacktide.schemas.queue import QueueBooking, QueueOutcome, QueueState
from slacktide.schemas.queue_objects import Part
from slacktide.streams.tasks import given_up

log = logging.getLogger(__name__)

AT_ONCE = 16
BATCH = 256
STEPS_MAX = 6
"""Steps per object and pass. Reset, restore, start and answer are four."""
AGAIN_S = 1.0
"""Delay before a step that failed, or that waits for pods, is retried."""
LINGER_S = 5.0
"""Interval at which the pods of a finished object are listed, until none runs."""
ANSWER_S = 10.0
"""Interval at which an unchanged answer is published again."""
UNSEEN_S = 5.0
"""Time after which a suspended object is assumed to create no pods, even if its controller has not reported it."""
REFUSALS = {400, 403, 413, 422}
_NAMED = attrgetter("result", "epoch", "turn")


class _Spec(Part, frozen=True, kw_only=True):
    node_name: str = ""
    scheduling_gates: list[Json] | None = None


class _Pod(Part, frozen=True, kw_only=True):
    """A pod of an object that is stopped, or has finished."""

    spec: _Spec = _Spec()
    status: PodStatus = PodStatus()

    @property
    def runs(self) -> bool:
        """Return whether it runs or may start: it has not ended, and does not wait for its gates."""
        ended = self.status.phase in {"Succeeded", "Failed"}
        return not ended and bool(self.spec.node_name or not self.spec.scheduling_gates)


class Actuator:
    """Acts on objects during one leader term; ``answer`` publishes outcomes to Kafka and may raise LogError."""

    def __init__(
        self, source: Source, answer: Callable[[Sequence[QueueOutcome]], Awaitable[None]], clock: Clock
    ) -> None:
        self.states: dict[str, QueueState] = {}
        """Workload states in Kafka, by uid."""
        self.changes = 0
        self._troubles: dict[str, str] = {}
        """By uid, why the last try failed; of "": why answers are not published."""
        self._source, self._answer, self._clock = source, answer, clock
        self._dirty: dict[str, None] = {}
        self._later: dict[str, float] = {}
        self._answered: dict[str, tuple[QueueOutcome, float]] = {}
        self._suspended_s: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        source.changed = self.changed

    @property
    def trouble(self) -> str:
        """Return why objects are not started or stopped, or answers not published; "" if they are."""
        return next(iter(self._troubles.values()), "")

    def changed(self, uid: str) -> None:
        """Record that an object or its state changed."""
        self.changes += 1
        self._dirty[uid] = None
        self._woken.set()

    async def run(self, api: ApiServer, ready: Callable[[], bool]) -> None:
        """Act on objects until cancelled, whenever ``ready`` returns true."""
        while True:
            uids = self._taken() if ready() else []
            if not uids:
                self._woken.clear()
                await asyncio.wait({waking := asyncio.ensure_future(self._woken.wait())}, timeout=AGAIN_S / 2)
                given_up(waking)
                continue
            found = await asyncio.gather(*(self._safely(api, uid) for uid in uids))
            await self._send([one for one in found if one is not None])

    def _taken(self) -> list[str]:
        now_s = mono_s(self._clock)
        for uid in [uid for uid, at_s in self._later.items() if at_s <= now_s]:
            del self._later[uid]
            self._dirty[uid] = None
        uids = [uid for uid, _ in zip(self._dirty, range(BATCH), strict=False)]
        for uid in uids:
            del self._dirty[uid]
        return uids

    async def _safely(self, api: ApiServer, uid: str) -> QueueOutcome | None:
        try:
            return await self._act(api, uid)
        except Exception as exc:
            log.exception("cannot start or stop a queued object", extra={"uid": uid})
            self._failed(uid, failure("act on", exc))
            return None

    async def _act(self, api: ApiServer, uid: str) -> QueueOutcome | None:
        """Take the steps that are due for one object; return the answer, if any."""
        why = ""
        known = self._source.works.get(uid)
        pods = 0 if known is None else len(known[1].evicted) + sum(known[1].pods_now.values())
        for _ in range(STEPS_MAX + (pods if known is not None and known[1].foreign else 0)):
            if uid not in self._source.works:
                self._answered.pop(uid, None)
                self._suspended_s.pop(uid, None)
                self._troubles.pop(uid, None)
                return None
            kind, work = self._source.works[uid]
            state = self.states.get(uid)
            step = due(work, state, self._source.flavors)
            if not isinstance(step, Write):
                return await self._answered_by(api, work, step, why)
            why = step.why
            if not await self._written(api, kind, work, step, state):
                return None
        self._later[uid] = mono_s(self._clock) + AGAIN_S
        return None

    async def _answered_by(
        self, api: ApiServer, work: Work, step: Answer | Look | None, why: str
    ) -> QueueOutcome | None:
        uid = work.metadata.uid
        if not work.suspended:
            self._suspended_s.pop(uid, None)
        if isinstance(step, Look):
            if await self._runs(api, work):
                self._later[uid] = mono_s(self._clock) + (AGAIN_S if step.result == "stopped" else LINGER_S)
                return None
            if step.result == "finished":
                self._source.over(uid)
            step = None if step.booking is None else Answer(step.booking, step.result)
        self._troubles.pop(uid, None)
        return None if step is None else self._outcome(uid, step._replace(why=step.why or why))

    async def _written(self, api: ApiServer, kind: Kind, work: Work, step: Write, state: QueueState | None) -> bool:
        metadata = work.metadata
        if work.evicted and step.what in {"stop", "suspend"}:
            return await self._evict(api, work)
        body = merged({"metadata": {"resourceVersion": work.version}}, step.body)
        name, result = body["metadata"].get("name", work.name), "done"
        try:
            async with self._slots:
                raw = await api.patch(
                    kind.resource, name, body, msgspec.Raw, namespace=metadata.namespace, sub=step.sub
                )
            if metadata.uid in self._source.works:  # otherwise the object was deleted
                self._source.put(kind, raw)
            self._dirty.pop(metadata.uid, None)
        except ApiRefusedError as exc:
            result = "conflict" if exc.status in {CONFLICT, NOT_FOUND} else "away"
            if exc.status in REFUSALS:
                result = "refused"
                log.warning("the API server rejected %s %s %s/%s", step.what, kind.name, metadata.namespace,
                            metadata.name, extra={"why": str(exc)})  # fmt: skip
                if step.what == "start" and state is not None and state.booking is not None:
                    metrics.WRITES.labels(step.what, result).inc()
                    refuse = Write("refuse", ending(state.booking, "refused"), why=str(exc))
                    return await self._written(api, kind, work, refuse, None)
            self._failed(metadata.uid, "" if result == "conflict" else str(exc))
        except ApiAwayError as exc:
            result = "away"
            self._failed(metadata.uid, str(exc))
        metrics.WRITES.labels(step.what, result).inc()
        if result == "done":
            self._troubles.pop(metadata.uid, None)
        return result == "done"

    async def _evict(self, api: ApiServer, work: Work) -> bool:
        """Evict pods, which cannot be suspended; return false: it takes time until they have stopped."""
        metadata, trouble = work.metadata, ""
        for name, uid in work.evicted.items():
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": metadata.namespace},
                "deleteOptions": {"preconditions": {"uid": uid}},
            }
            result = "done"
            try:
                async with self._slots:
                    with IgnoreStatus(NOT_FOUND):
                        await api.create(PODS, body, dict, namespace=metadata.namespace, name=name, sub="eviction")
            except ApiError as exc:
                result = "refused" if isinstance(exc, ApiRefusedError) else "away"
                trouble = str(exc)
            metrics.WRITES.labels("evict", result).inc()
        self._failed(metadata.uid, trouble)
        return False

    async def _runs(self, api: ApiServer, work: Work) -> bool:
        uid = work.metadata.uid
        if not (work.settled or work.finished or work.held):
            since_s = self._suspended_s.setdefault(uid, mono_s(self._clock))
            if work.foreign or mono_s(self._clock) < since_s + UNSEEN_S:
                return True
        pods: list[_Pod] = []
        try:
            for selector in work.pods:
                of_field = selector.startswith("metadata.name=")
                fields, labels = (selector, "") if of_field else ("", selector)
                async with self._slots:
                    found = await api.list(PODS, _Pod, namespace=work.metadata.namespace, fields=fields, labels=labels)
                pods += found.items
        except ApiError as exc:
            self._failed(uid, str(exc))
            return True
        self._troubles.pop(uid, None)
        return any(one.runs for one in pods)

    def _outcome(self, uid: str, answer: Answer) -> QueueOutcome | None:
        booking: QueueBooking = answer.booking
        outcome = QueueOutcome(
            uid=uid,
            result=answer.result,
            epoch=booking.epoch,
            turn=booking.turn,
            why=answer.why[:TEXT_CHARS_MAX],  # it quotes what users and the API server write
            acted_ms=self._clock.wall_ms(),
        )
        before, at_s = self._answered.get(uid, (None, 0.0))
        same = before is not None and _NAMED(before) == _NAMED(outcome)
        self._later[uid] = max(mono_s(self._clock), at_s if same else 0.0) + ANSWER_S
        return None if same and mono_s(self._clock) < at_s + ANSWER_S else outcome

    async def _send(self, outcomes: Sequence[QueueOutcome]) -> None:
        if not outcomes:
            return
        try:
            await self._answer(outcomes)
        except LogError as exc:
            self._troubles[""] = str(exc)
            for one in outcomes:
                self._later[one.uid] = mono_s(self._clock) + AGAIN_S
            return
        self._troubles.pop("", None)
        for one in outcomes:
            self._answered[one.uid] = one, mono_s(self._clock)
            metrics.ANSWERS.labels(one.result).inc()

    def _failed(self, uid: str, why: str) -> None:
        self._later[uid] = mono_s(self._clock) + AGAIN_S
        if why:
            self._troubles[uid] = why
