"""One replica of the bridge. The holder of the lease works; the others stand by."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from slacktide.agents.clock import Clock, SystemClock, mono_s
from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.election import TIMING, Election, Timing, epoch_of
from slacktide.agents.cluster.bridge.job_log import JobSource
from slacktide.agents.cluster.bridge.mirror import Mirror, TopologyMirror
from slacktide.agents.cluster.bridge.node_status import Shown
from slacktide.agents.cluster.bridge.removal import Removal
from slacktide.agents.cluster.bridge.sources import EarlierTerm, NodeSource, read_back
from slacktide.agents.cluster.bridge.writing import FigureReader, NodeSelector, Writing
from slacktide.agents.cluster.descheduler.descheduler import Descheduler
from slacktide.agents.cluster.descheduler.passes import Place
from slacktide.agents.cluster.enrolment.enrolment import Enrolment, EnrolmentSettings, follow
from slacktide.agents.cluster.enrolment.issuer import Ring
from slacktide.agents.cluster.events import About, EventSource, IgnoredFields, create_event
from slacktide.agents.cluster.pending.deadlines import PendingDeadlines
from slacktide.agents.cluster.queue.queue import JobQueue
from slacktide.agents.cluster.reservation.keeper import Keeper
from slacktide.agents.cluster.watching import ConfigMapName, PolicySource
from slacktide.agents.credit_account import signed
from slacktide.agents.kubernetes.access import Access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Meta
from slacktide.agents.kubernetes.resource import ApiError
from slacktide.agents.publisher import Publisher
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import Mode
from slacktide.streams.kafka import create_topics
from slacktide.streams.records import Record
from slacktide.streams.tasks import ended, until_one_ends

log = logging.getLogger(__name__)

LOOK_S = 0.5
RETRY_S, RETRY_MAX_S = 1.0, 5.0
NAME = "slacktide-bridge"
SOURCE = "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Settings of one replica."""

    bootstrap: Cluster
    access: Access
    replica: str
    namespace: str
    config_map: ConfigMapName
    timing: Timing = TIMING
    node_selector: NodeSelector | None = None
    """Other Nodes are not written to, and published only if they have its key. None: all are."""
    node_proof: Mode = "off"
    """The node proof mode to publish, regardless of the ConfigMap."""
    enrolment: EnrolmentSettings | None = None
    """Serves keys to agents; None: does not."""
    deployment: str | None = None
    """The bridge's own Deployment, as NAMESPACE/NAME. When it or its RBAC is deleted, Nodes lose their batch resources.

    None: they keep them."""
    queue: bool = False
    reservation_image: str = ""
    """Image of the pods that hold the room of Reservations; "": Reservations are ignored."""
    pending_deadlines: bool = False


async def run(settings: BridgeSettings, stop: asyncio.Event, health: Health) -> None:
    """Run one replica until ``stop`` is set, then release the lease."""
    clock = SystemClock()
    async with ApiServer(settings.access, name=NAME) as api:
        election = Election(
            api, namespace=settings.namespace, name=NAME, me=settings.replica, clock=clock, timing=settings.timing
        )
        ring = Ring(api, settings.namespace, lambda: mono_s(clock))
        removal = None
        if settings.deployment is not None:
            removal = Removal(api, settings.deployment, NAME, settings.node_selector)
        over = asyncio.Event()
        beside = [asyncio.create_task(_report_waiting(election, health))]
        if settings.enrolment is not None:
            enrolment = Enrolment(api, settings.enrolment, ring, clock.wall_ms)
            beside += [
                asyncio.create_task(_lasting(enrolment.run)),
                asyncio.create_task(_lasting(partial(follow, ring))),
            ]
        beside.append(asyncio.create_task(_end(over, stop.wait())))
        if removal is not None:
            beside.append(asyncio.create_task(_end(over, removal.begun())))
        try:
            await election.run(over, lambda: _lead(settings, api, election, health, clock, ring, removal))
            if removal is not None:
                # Leader or not: the last replica to end must do it.
                await removal.finish(leads=election.leader == settings.replica)
        finally:
            await ended(*beside)


async def _end(over: asyncio.Event, reason: Awaitable[object]) -> None:
    await reason
    over.set()


async def _lasting(work: Callable[[], Awaitable[None]]) -> None:
    """Restart the work after any error: the bridge goes on without it."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("enrolment failed; restarting it")
        await asyncio.sleep(RETRY_S)


async def _report_waiting(election: Election, health: Health) -> None:
    """Report a standby replica as ready once it has read the lease."""
    while True:
        if not election.leading:
            health.not_ready, health.not_fresh = election.trouble, ""
        await asyncio.sleep(LOOK_S)


async def _lead(
    settings: BridgeSettings,
    api: ApiServer,
    election: Election,
    health: Health,
    clock: Clock,
    ring: Ring,
    removal: Removal | None,
) -> None:
    if removal is not None:
        await removal.hold()
    health.not_ready = "leading: reading the records of the former leader"
    earlier = await _read_earlier_term(settings.bootstrap, health)
    epoch = epoch_of(election.transitions, earlier.epoch)
    backoff = Backoff(RETRY_S, RETRY_MAX_S)
    while epoch - 1 != election.transitions:
        try:
            await election.count_from(epoch - 1)
        except ApiError as exc:
            health.not_ready = str(exc)
            await asyncio.sleep(backoff.next_s())
    try:
        metrics.leads(epoch)
        log.info("this replica is the leader and writes", extra={"writer_epoch": epoch})
        await _Leader(settings, earlier, epoch, clock, ring).run(api, health)
    finally:
        metrics.leads_no_more()


async def _read_earlier_term(bootstrap: Cluster, health: Health) -> EarlierTerm:
    backoff = Backoff(RETRY_S, RETRY_MAX_S)
    while True:
        try:
            await create_topics(bootstrap)
            return await read_back(bootstrap)
        except LogError as exc:
            if health.not_ready != str(exc):
                log.warning("Kafka is unreachable", extra={"for": "the records of the former leader", "why": str(exc)})
            health.not_ready = str(exc)
            await asyncio.sleep(backoff.next_s())


class _Leader:
    def __init__(self, settings: BridgeSettings, earlier: EarlierTerm, epoch: int, clock: Clock, ring: Ring) -> None:
        self._clock = clock
        self._node_proof, self._replica = settings.node_proof, settings.replica
        self._publisher = Publisher(
            settings.bootstrap,
            ensure_topics=partial(create_topics, settings.bootstrap),
            now_ms=clock.wall_ms,
            node_source="inventory",
            writer_epoch=epoch,
            source=SOURCE,
        )
        self._writing = Writing(selector=settings.node_selector)
        self._ignored = IgnoredFields(SOURCE, settings.replica, clock.wall_ms)
        self._nodes = NodeSource(self, earlier, self._ignored)
        self._published = set(earlier.nodes)
        self._policies = PolicySource(self, earlier.policy, settings.config_map)
        self._reader = FigureReader(settings.bootstrap, self._writing, self._to_dead_letter, clock)
        self._mirror = Mirror(self._writing, clock)
        self._topologies = TopologyMirror(settings.bootstrap, lambda: self._writing.shown, self._to_dead_letter, clock)
        self._descheduler = Descheduler(
            settings.bootstrap,
            self._metric_of,
            epoch,
            settings.replica,
            self._to_dead_letter,
            clock,
            self._ignored,
            sign=lambda out: signed(out, ring.keys(), clock.wall_ms()),
        )
        self._jobs = JobSource(settings.bootstrap, epoch, self._to_dead_letter, clock, self._ignored)
        namespace = settings.config_map.namespace
        self._queue = JobQueue(settings.bootstrap, clock, settings.replica, namespace) if settings.queue else None
        image = settings.reservation_image
        self._reservations = Keeper(settings.bootstrap, image, clock) if image else None
        self._deadlines = PendingDeadlines(clock, settings.replica) if settings.pending_deadlines else None
        self._troubles = {"nodes": "not listed yet", "policy": "not read yet"}

    async def run(self, api: ApiServer, health: Health) -> None:
        """Run until cancelled."""
        never = asyncio.Event()
        await until_one_ends(
            self._publisher.run(never),
            self._nodes.run(api),
            self._policies.run(api),
            self._reader.run(),
            self._mirror.run(api),
            self._topologies.run(api),
            self._descheduler.run(api),
            self._jobs.run(api),
            self._ignored.run(api),
            *(one.run(api) for one in (self._queue, self._reservations, self._deadlines) if one is not None),
            self._report(health),
        )

    def node(self, uid: str, place: Place, shown: Shown) -> None:
        """Add or update a node, or forget one that has no agent any more."""
        name = place.facts.name
        if not self._writing.concerns(place.facts):
            if name in self._published:
                self.removed(name)
            return
        self._published.add(name)
        self._publisher.inventory(place.facts)
        self._writing.node(uid, place.facts, shown, mono_s(self._clock))
        if self._writing.writes_to(place.facts):
            self._descheduler.node(place)
        else:
            self._descheduler.removed(name)
        metrics.offers(name, shown.allocatable)

    def removed(self, name: str) -> None:
        """Remove a node."""
        self._published.discard(name)
        self._publisher.removed(name)
        self._writing.gone(name)
        self._descheduler.removed(name)
        metrics.gone(name)

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""
        policy = msgspec.structs.replace(policy, node_proof=self._node_proof)
        log.info("policy in force", extra={"version": policy.version})
        self._publisher.policy(policy)
        self._writing.policy(policy)
        self._descheduler.policy(policy)

    def trouble(self, of: str, why: str) -> None:
        """Note why a source cannot be read, or has invalid data; "": all is well."""
        if why and self._troubles[of] != why:
            log.warning("%s cannot be read or used", of, extra={"why": why})
        self._troubles[of] = why

    def policy_trouble(self, why: str) -> None:
        """Note why the policy cannot be read, or is invalid; "": all is well."""
        self.trouble("policy", why)

    async def policy_refused(self, api: ApiServer, document: dict[str, Any], text: str) -> None:
        """Create an Event on the ConfigMap: one for each of its versions."""
        meta = msgspec.convert(document["metadata"], Meta)
        about = About(namespace=meta.namespace, name=meta.name, uid=meta.uid, kind="ConfigMap")
        source = EventSource(part="bridge", replica=self._replica, action="ReadPolicy")
        once, now_ms = meta.resource_version, self._clock.wall_ms()
        try:
            await create_event(api, source, about, "PolicyRefused", text, now_ms=now_ms, once=once)
        except ApiError as exc:
            log.warning("cannot create an Event on the policy's ConfigMap", extra={"why": str(exc)})

    def _to_dead_letter(self, record: Record, reason: str) -> None:
        metrics.REFUSED.labels(record.topic).inc()
        self._publisher.to_dead_letter(record, reason)

    def _metric_of(self, node: str) -> NodeMetric | None:
        return self._writing.metrics.of(node, mono_s(self._clock))

    async def _report(self, health: Health) -> None:
        while True:
            nodes, frozen = len(self._writing.nodes), self._writing.frozen(mono_s(self._clock))
            metrics.NODES.set(nodes)
            metrics.FROZEN.set(frozen)
            metrics.CAPPED.set(len(self._writing.capped))
            metrics.POLICY_REFUSED.set(bool(self._policies.refused))
            troubles = {
                **self._troubles,
                "log": self._publisher.away or self._reader.following.trouble,
                "writes": self._mirror.trouble,
                "zones": self._topologies.trouble,
                "descheduling": self._descheduler.trouble,
                "jobs": self._jobs.trouble,
                "events": self._ignored.trouble,
                "queue": "" if self._queue is None else self._queue.trouble,
                "reservations": "" if self._reservations is None else self._reservations.trouble,
                "pending deadlines": "" if self._deadlines is None else self._deadlines.trouble,
            }
            for of, why in troubles.items():
                metrics.TROUBLE.labels(of).set(bool(why))
            silent = f"{frozen} of {nodes} nodes have no fresh figures and stay unchanged" if frozen else ""
            health.not_ready = self._publisher.away
            health.not_fresh = "; ".join(f"{of}: {why}" for of, why in troubles.items() if why) or silent
            await asyncio.sleep(LOOK_S)
