"""Places that are held for pods before a kube-scheduler binds them: of gangs and of reservations.

Placements and decisions are published to Kafka, and pods are released by patches and get Events.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.optional_kind import OptionalKind
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.notices import OTHER_POD, wake
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.reservations import Reservations
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.words import worded
from slacktide.agents.kubernetes.api_server import STRATEGIC_PATCH, ApiServer
from slacktide.agents.kubernetes.resource import PODS, RESERVATIONS, ApiError, IgnoreStatus, Resource
from slacktide.agents.publisher import Outbox
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import failure
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.message import Message
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.reservation import ReservationOpen
from slacktide.schemas.topics import DEAD_LETTER, GANG_PLAN, PLACEMENT, RESERVATION_OPEN, Topic
from slacktide.streams.decisions.gang.membership import GATE, Kind, Options, options_of_group
from slacktide.streams.decisions.queue.kinds.manifest import Part
from slacktide.streams.decisions.reservation.objects import reservation_of
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, event
from slacktide.streams.tasks import until_one_ends

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
        """Queue a placement, unless the same was just published of a pending pod."""
        uid, at_ms = placement.pod_uid, placement.decided_ms
        before, published_ms = self._waits.get(uid, (None, 0))
        why = tuple((one.reason, one.count) for one in placement.refused)
        if not placement.passed and before == why and at_ms < published_ms + AGAIN_MS:
            return
        self._waits.pop(uid, None)
        if not placement.passed:
            self._waits[uid] = why, at_ms
        while len(self._waits) > REMEMBERED:
            self._waits.popitem(last=False)
        event_id = f"placement/{uid}/{at_ms}"
        self.put(event(PLACEMENT.name, uid, encode(placement), source=SOURCE, event_id=event_id, event_ms=at_ms))


M = TypeVar("M", bound=Message)


class DecisionOutbox(Outbox):
    """Queues decisions about groups of pods. Each is sent at once: a kube-scheduler waits for it."""

    def __init__(self, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        topics = GANG_PLAN.name, RESERVATION_OPEN.name, DEAD_LETTER.name
        super().__init__(bootstrap, topics, now_ms, source=SOURCE, gather_s=0.0)

    def publish(self, topic: Topic, key: str, decision: Message | None) -> None:
        """Queue a decision; None: its key is forgotten."""
        at_ms = self._now_ms()
        value, event_id = None if decision is None else encode(decision), f"{topic.name}/{key}/{at_ms}"
        self.put(event(topic.name, key, value, source=SOURCE, event_id=event_id, event_ms=at_ms))


class DecisionReader(Generic[M]):
    """Reads decisions of one topic from its beginning, in an order that all replicas share.

    ``take`` applies one; None: its key is forgotten. ``pods_known``: whether pods were listed; before that, places
    cannot be held. ``to_dead_letter`` receives invalid records, each with the reason. ``news`` is set after each read.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        kind: type[M],
        take: Callable[[str, M | None, Now], None],
        pods_known: Callable[[], bool],
        to_dead_letter: Callable[[Record, str], None],
        news: asyncio.Event,
        clock: Clock,
    ) -> None:
        self.whole = False
        """Whether all earlier records were read."""
        self._reader = TailReader(cluster, (topic.name,), client_id="slacktide-scheduler-decisions", whole=True)
        self.following = Following(self._reader, away="gangs and reservations get no places", clock=clock)
        self._kind, self._take, self._pods_known = kind, take, pods_known
        self._to_dead_letter, self._news, self._clock = to_dead_letter, news, clock

    async def run(self) -> None:
        """Run until cancelled."""
        while not self._pods_known():  # noqa: ASYNC110 - a plain value, filled by the watch
            await asyncio.sleep(POLL_S)
        await self.following.run(lambda: None, self._read)

    async def _read(self, records: list[Record], _: float) -> None:
        for record in records:
            try:
                found = None if record.value is None else decode(record.value, self._kind)
                self._take((record.key or b"").decode(), found, Now.by(self._clock))
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                metrics.REFUSED.labels(record.topic).inc()
                self._to_dead_letter(record, failure("place", exc))
        if records:
            self._news.set()
        if not self.whole and await self._reader.caught_up():
            self.whole = True


log = logging.getLogger(__name__)

TICK_S, LEAST_S = 0.5, 0.05
"""How often pods are looked at without and with news."""
AT_ONCE = 8
REASON = "PlacedWithoutGang"
NOTE = "it was bound before its gang had places for all, because its scheduler could not reach Slacktide's extender"


class PodWriter:
    """Writes what gangs and reservations want, twice a second, and at once after news."""

    def __init__(
        self, gangs: Gangs, reservations: Reservations, news: asyncio.Event, clock: Clock, replica: str
    ) -> None:
        self.trouble = ""
        """Why the last write failed; "": it did not."""
        self._gangs, self._reservations, self._news, self._clock = gangs, reservations, news, clock
        self._source = EventSource(part="scheduler", replica=replica, action="Schedule")
        self._few = asyncio.Semaphore(AT_ONCE)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled, once decisions of the past are known."""
        while True:
            await self._write(api)
            await asyncio.sleep(LEAST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._news.wait()
            self._news.clear()

    async def _write(self, api: ApiServer) -> None:
        now, now_ms = Now.by(self._clock), self._clock.wall_ms()
        work = self._gangs.tick(now)
        work.wake.extend(self._reservations.tick(now))
        alone, self._gangs.unplanned = self._gangs.unplanned, []
        writes = [
            *(self._each(pod, self._release(api, pod)) for pod in work.release),
            *(self._each(pod, wake(api, pod, now_ms)) for pod in work.wake),
            *(
                self._each(pod, create_event(api, self._source, About.of(pod.asked.pod), REASON, NOTE, now_ms=now_ms))
                for pod in alone
            ),
        ]
        troubles = await asyncio.gather(*writes)
        if writes:
            self.trouble = next(filter(None, troubles), "")

    async def _each(self, pod: SchedulerPod, write: Awaitable[None]) -> str:
        """Write, a few at a time; return why it failed."""
        try:
            async with self._few:
                await write
        except ApiError as exc:
            self._gangs.fail(pod)
            if not self.trouble:
                log.warning("cannot write to a pod", extra={"pod": "/".join(pod.key), "why": str(exc)})
            return str(exc)
        return ""

    async def _release(self, api: ApiServer, pod: SchedulerPod) -> None:
        namespace, name = pod.key
        gates = [{"name": GATE, "$patch": "delete"}]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}}
        with IgnoreStatus(*OTHER_POD):
            await api.patch(PODS, name, patch, dict, namespace=namespace, how=STRATEGIC_PATCH)
            metrics.RELEASED.inc()


POD_GROUPS: Mapping[Kind, Resource] = {
    "pod_group": Resource(group="scheduling.sigs.k8s.io", version="v1alpha1", plural="podgroups"),
    "x_pod_group": Resource(group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups"),
}
POLL_S = 0.1


class HeldPlaces:
    """Gangs and reservations with what they read and write.

    ``pods_known``: whether pods were listed.
    """

    def __init__(
        self, cluster: Cluster, view: View, pods_known: Callable[[], bool], clock: Clock, replica: str,
        *, gangs: bool, reservations: bool,
    ) -> None:  # fmt: skip
        self._outbox = outbox = DecisionOutbox(cluster, clock.wall_ms)
        self.gangs = Gangs(view, replica, partial(outbox.publish, GANG_PLAN), worded)
        self.reservations = Reservations(view, partial(outbox.publish, RESERVATION_OPEN))
        self.gangs.enabled, self.reservations.enabled = gangs, reservations
        self._news = asyncio.Event()
        self._readers: list[DecisionReader[Any]] = []
        self._kinds: list[OptionalKind] = []
        rest = lambda: pods_known() and all(one.listed for one in self._kinds), outbox.to_dead_letter, self._news, clock
        if gangs:
            self._readers.append(DecisionReader(cluster, GANG_PLAN, GangPlan, self.gangs.read, *rest))
            self._kinds += [pod_groups(kind, self.gangs) for kind in POD_GROUPS]
        if reservations:
            self._readers.append(
                DecisionReader(cluster, RESERVATION_OPEN, ReservationOpen, self.reservations.read, *rest)
            )
            self._kinds.append(OptionalKind(RESERVATIONS, self._take_reservation, self.reservations.forget))
        self._writer = PodWriter(self.gangs, self.reservations, self._news, clock, replica)

    @property
    def lacking(self) -> str:
        """Return why places are not known yet; "": they are."""
        reader = next((one for one in self._readers if not one.whole), None)
        return "" if reader is None else reader.following.trouble or "held places are being read"

    @property
    def log_trouble(self) -> str:
        """Return why Kafka has not all decisions, or they cannot be read; "": all is well."""
        return self._outbox.away or next((one.following.trouble for one in self._readers if one.following.trouble), "")

    @property
    def trouble(self) -> str:
        """Return what cannot be read or written at the API server; "": all can."""
        return "; ".join(one.trouble for one in self._kinds if one.trouble) or self._writer.trouble

    def holds(self, uid: str) -> bool:
        """Return whether a place is held for the pod."""
        return self.gangs.holds(uid) or self.reservations.holds(uid)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        if not self._readers:
            return
        reading = [*(one.run() for one in self._readers), *(one.run(api) for one in self._kinds)]
        await until_one_ends(self._outbox.run(), *reading, self._write(api))

    async def _write(self, api: ApiServer) -> None:
        while self.lacking:  # noqa: ASYNC110 - a plain value, filled by the readers
            await asyncio.sleep(POLL_S)
        await self._writer.run(api)

    async def close(self) -> None:
        """Send the rest at shutdown."""
        await self._outbox.close()

    def _take_reservation(self, item: Mapping[str, Any]) -> str:
        reservation = reservation_of(item)
        self.reservations.take(reservation)
        return reservation.uid


def pod_groups(kind: Kind, gangs: Gangs) -> OptionalKind:
    """Follow the PodGroups of one API group."""

    def take(item: Mapping[str, Any]) -> str:
        gang, options = pod_group_of(item)
        gangs.take_options(kind, gang, options)
        return gang

    return OptionalKind(POD_GROUPS[kind], take, lambda gang: gangs.take_options(kind, gang, None))


def pod_group_of(item: Mapping[str, Any]) -> tuple[str, Options]:
    """Return the id of a PodGroup and what it asks for. Raises CaseError."""
    part = Part(dict(item))
    metadata, spec = part["metadata"], part["spec"]
    gang = f"{metadata['namespace'].text()}/{metadata['name'].text()}"
    annotations = metadata["annotations"].texts()
    least, timeout_s, resources = (
        spec["minMember"].value,
        spec["scheduleTimeoutSeconds"].value,
        spec["minResources"].map(),
    )
    return gang, options_of_group(gang, least, timeout_s, annotations, resources)
