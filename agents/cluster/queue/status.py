"""What users see of the queue where Slacktide admits: the status of queues, and Events on queued objects.

A status has Kueue's fields. No admission check is executed, so a workload with quota reservation is admitted. Each is
written at most once in two seconds. At most five Events are written in a second.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.actuator import Actuator
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.work import ACTIVE, Json, Kind, Queue, Work
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import ApiError, ApiRefusedError, Resource
from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue import OfferedObject, QueueState
from slacktide.schemas.queue_objects import ClusterQueueObject, LocalQueueObject, QueueObject
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.cluster_objects import QueueObjects, Stopped
from slacktide.streams.decisions.queue.job import QUEUE_NAME
from slacktide.streams.decisions.queue.kinds.files import REASONS
from slacktide.streams.decisions.queue.missing import meaning
from slacktide.streams.decisions.queue.queue_order import CHECK
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode
from slacktide.streams.decisions.queue.workload_objects import booked, namespace_of

log = logging.getLogger(__name__)


class _Count:
    def __init__(self) -> None:
        self.pending = self.reserving = 0
        self.usage: Counter[FlavorResource] = Counter()


def statuses(
    given: Sequence[QueueObject],
    works: Mapping[str, Work],
    states: Mapping[str, QueueState],
    stands: Mapping[Queue, Json],
    now_ms: int,
) -> dict[Queue, Json]:
    """Compute the status of each queue, without fields of other writers.

    ``works`` and ``states`` are by uid. ``stands`` is the status in the API server, with the times of conditions.
    Raises CaseError if the objects are inconsistent.
    """
    objects = QueueObjects(given)
    built = objects.built()
    counts = _counted(objects, works, states)
    nodes = {one.node.name: one.node for one in built.queues}
    lacking = {
        one.node.name: sorted({of.flavor for of in one.node.quotas} - built.flavors.keys()) for one in built.queues
    }
    found: dict[Queue, Json] = {}
    for one in given:
        if isinstance(one, ClusterQueueObject):
            queue, node = Queue("ClusterQueue", "", one.metadata.name), nodes.get(one.metadata.name)
            active = _of_cluster_queue(lacking[one.metadata.name], objects.stopped(one.metadata.name))
        elif isinstance(one, LocalQueueObject):
            queue = Queue("LocalQueue", one.metadata.namespace, one.metadata.name)
            node = nodes.get(one.spec.cluster_queue)
            own = objects.stopped("", namespace_of(one), one.metadata.name)
            stopped = own if own.reason else objects.stopped(one.spec.cluster_queue)
            active = _of_local_queue(lacking.get(one.spec.cluster_queue), stopped)
        else:
            continue
        count, condition = counts.get(queue) or _Count(), _timed(active, stands.get(queue, {}), now_ms)
        usage = [] if node is None else _flavors(node, count.usage, borrows=queue.kind == "ClusterQueue")
        found[queue] = {
            "pendingWorkloads": count.pending,
            "reservingWorkloads": count.reserving,
            "admittedWorkloads": count.reserving,
            "flavorsReservation": usage,
            "flavorsUsage": usage,
            "conditions": [condition],
        }
    return found


def _counted(objects: QueueObjects, works: Mapping[str, Work], states: Mapping[str, QueueState]) -> dict[Queue, _Count]:
    counts: dict[Queue, _Count] = {}
    for uid, state in states.items():
        if state.booking is not None:
            work = works.get(uid)
            done = {} if work is None else work.done
            pods = {one.name: one.count for one in work.pod_sets} if work is not None and done else {}
            usage = booked(state.booking.pod_sets, pods, done)[0]
            for queue in _queues(state.booking.cluster_queue, work):
                count = counts.setdefault(queue, _Count())
                count.reserving += 1
                count.usage.update(usage)
    for uid, work in works.items():
        one = states.get(uid)
        if work.finished or (one is not None and one.phase != "pending"):
            continue
        name = objects.place(work.metadata.namespace, (work.metadata.labels or {}).get(QUEUE_NAME, ""))[0]
        if name is not None and (work.metadata.annotations or {}).get(ACTIVE) != "false":
            for queue in _queues(name, work):
                counts.setdefault(queue, _Count()).pending += 1
    return counts


def _queues(cluster_queue: str, work: Work | None) -> Iterable[Queue]:
    yield Queue("ClusterQueue", "", cluster_queue)
    if work is not None:
        yield Queue("LocalQueue", work.metadata.namespace, (work.metadata.labels or {}).get(QUEUE_NAME, ""))


def _flavors(node: QuotaNode, usage: Mapping[FlavorResource, int], *, borrows: bool) -> list[Json]:
    """Return each resource of each flavor of the ClusterQueue, used or not."""
    flavors: dict[str, list[Json]] = {}
    for of, quota in node.quotas.items():
        used = usage.get(of, 0)
        one = {"name": of.resource, "total": _text(of.resource, used)}
        if borrows:
            one["borrowed"] = _text(of.resource, max(0, used - quota.nominal))
        flavors.setdefault(of.flavor, []).append(one)
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]


def _text(resource: str, amount: int) -> str:
    return cpu_text(amount) if resource == "cpu" else mem_text(amount) if resource == "memory" else str(amount)


def _of_cluster_queue(lacking: Sequence[str], stopped: Stopped) -> Json:
    check = stopped.reason.partition(CHECK)[2]
    why = {"AdmissionCheckNotFound": f"needs the admission check {check}"} if check else {}
    if stopped.reason and not check:
        why = {"Stopped": "is stopped"}
    if lacking:
        why["FlavorNotFound"] = f"references missing ResourceFlavor(s): {','.join(lacking)}"
    if why:
        message = f"Can't admit new workloads: {', '.join(why.values())}."
        return {"status": "False", "reason": next(iter(why)), "message": message}
    return {"status": "True", "reason": "Ready", "message": "Can admit new workloads"}


def _of_local_queue(lacking: Sequence[str] | None, stopped: Stopped) -> Json:
    """Return the condition ``Active``; None: its ClusterQueue does not exist."""
    if stopped.reason == "LocalQueueStopped":
        return {"status": "False", "reason": "Stopped", "message": "LocalQueue is stopped"}
    if lacking is None or lacking or stopped.reason:
        reason = "ClusterQueueDoesNotExist" if lacking is None else "ClusterQueueIsInactive"
        return {"status": "False", "reason": reason, "message": "Can't submit new workloads to clusterQueue"}
    return {"status": "True", "reason": "Ready", "message": "Can submit new workloads to localQueue"}


def _timed(active: Json, stands: Json, now_ms: int) -> Json:
    before: Json = next((one for one in stands.get("conditions") or () if one.get("type") == "Active"), {})
    now = datetime.fromtimestamp(now_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = before.get("lastTransitionTime") if before.get("status") == active["status"] else None
    return {"type": "Active", **active, "lastTransitionTime": since or now}


PAUSE_S = 2.0
SHARE = 0.05
"""Maximum share of a core: with 50,000 workloads a pass takes a quarter of a second."""


class Statuses:
    """Writes statuses during one leader term."""

    def __init__(
        self, source: Source, actuator: Actuator, offered: Callable[[], Iterable[OfferedObject]], clock: Clock
    ) -> None:
        self._source, self._actuator, self._offered, self._clock = source, actuator, offered, clock
        self._seen: tuple[int, int] | None = None

    async def run(self, api: ApiServer, served: Callable[[], Mapping[str, Resource]]) -> None:
        """Write statuses until cancelled, of the kinds that ``served`` returns; none while nothing may be written."""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(PAUSE_S, took_s / SHARE))
            kinds, seen = served(), (self._source.changes, self._actuator.changes)
            if not kinds or seen == self._seen:
                continue
            begun_ns = self._clock.mono_ns()
            try:
                due = self._due()
                took_s = (self._clock.mono_ns() - begun_ns) / 1e9
                for queue, status in due:
                    await self._write(api, kinds[queue.kind], queue, status)
                self._seen = seen
            except CaseError as exc:
                self._seen = seen
                log.warning("the status of queues is not written", extra={"why": str(exc)})
            except ApiError as exc:
                log.info("cannot write the status of queues", extra={"why": str(exc)})

    def _due(self) -> list[tuple[Queue, Json]]:
        source = self._source
        works = {uid: work for uid, (_, work) in source.works.items()}
        objects = [*source.objects, *self._offered()]
        made = statuses(objects, works, self._actuator.states, source.stands, self._clock.wall_ms())
        return [(one, status) for one, status in made.items() if not status.items() <= self._stands(one).items()]

    def _stands(self, one: Queue) -> Json:
        return self._source.stands.get(one, {})

    async def _write(self, api: ApiServer, kind: Resource, queue: Queue, status: Json) -> None:
        result = "done"
        try:
            await api.patch(kind, queue.name, {"status": status}, dict, namespace=queue.namespace, sub="status")
            self._source.stands[queue] = {**self._stands(queue), **status}
        except ApiRefusedError as exc:
            result = "refused"
            log.info("the API server rejected the status of a queue", extra={"queue": queue, "why": str(exc)})
        except ApiError:
            result = "away"
            raise
        finally:
            metrics.WRITES.labels("status", result).inc()


WAITING_MAX = 1_000
"""Further Events are dropped; Kafka has all states."""
REFUSED_MAX = 10_000
"""Objects beyond get no Event that they are not queued."""
NOTICE_PAUSE_S = 0.2


class Notice(NamedTuple):
    """An Event to write."""

    reason: str
    note: str
    once: str
    """Part of the Event's name, so that each Event is written once."""


def notice_of(state: QueueState) -> Notice | None:
    """Return the Event for a state; None if there is none."""
    booking, turn = state.booking, f"{state.epoch}-{state.turn}"
    if state.phase == "pending" and state.reason:
        reason = state.reason.partition(":")[0]
        return Notice("Waiting", f"{reason}: {meaning(state.reason).why}", reason.lower())
    if state.phase == "reserved" and booking is not None and not state.started:
        flavors = [
            f"{resource} of {flavor}" for one in booking.pod_sets for resource, flavor in sorted(one.flavors.items())
        ]
        note = f"admitted by ClusterQueue {booking.cluster_queue}: {', '.join(dict.fromkeys(flavors))}"
        return Notice("Admitted", note, turn)
    if state.phase == "evicting":
        of = f" for the workload {state.preemptor}" if state.preemptor else ""
        return Notice("Evicted", f"{state.reason}{of}: {meaning(state.reason).why}", turn)
    return None


class Notices:
    """Writes Events during one leader term."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._waiting: dict[tuple[str, str], tuple[About | None, Notice]] = {}
        self._refused: dict[str, str] = {}

    def put(self, state: QueueState) -> None:
        """Queue the Event of a new state."""
        self._put(state.uid, None, notice_of(state))

    def refused(self, kind: Kind, one: Work) -> None:
        """Queue the Event of an object that is not queued."""
        if self._refused.get(one.uid) != one.refused and len(self._refused) < REFUSED_MAX:
            self._refused[one.uid] = one.refused
            note = Notice("NotQueued", f"{one.refused}: {REASONS[one.refused]}", one.refused.replace("_", "-"))
            self._put(one.uid, _about(kind, one), note)

    def _put(self, uid: str, about: About | None, notice: Notice | None) -> None:
        if notice is not None and len(self._waiting) < WAITING_MAX:
            self._waiting[uid, notice.reason] = about, notice

    async def run(self, api: ApiServer, acts: Callable[[], bool], *, replica: str) -> None:
        """Write Events until cancelled, while ``acts`` returns true."""
        by = EventSource(part="queue", replica=replica, action="Queue")
        while True:
            await asyncio.sleep(NOTICE_PAUSE_S)
            if not self._waiting or not acts():
                continue
            (uid, _), (about, notice) = next(iter(self._waiting.items()))
            del self._waiting[uid, notice.reason]
            if about is None:
                if uid not in self._source.works:
                    continue
                kind, work = self._source.works[uid]
                about = _about(kind, work)
            try:
                await create_event(api, by, about, notice.reason, notice.note, now_ms=self._clock.wall_ms(),
                                   once=notice.once, warning=notice.reason == "NotQueued")  # fmt: skip
            except ApiError as exc:
                log.info("an Event could not be created", extra={"why": str(exc)})


def _about(kind: Kind, one: Work) -> About:
    """Return the object of an Event; of a group, its first pod."""
    return About(namespace=one.metadata.namespace, name=one.name, uid=one.uid, kind=kind.name,
                 api_version=kind.resource.api_version)  # fmt: skip
