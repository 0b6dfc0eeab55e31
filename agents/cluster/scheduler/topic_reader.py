"""Reads Kafka for the extender: figures of nodes, and placements by other replicas and earlier runs.

These pods count on their nodes until they are bound. Without them, an extender that starts during a burst would send
further pods to full nodes.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.node import Figures, Size
from slacktide.agents.cluster.scheduler.view import BINDING_S, View
from slacktide.schemas import policy as policies
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.inventory import LastWriter, NodeInventory
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.policy.strategies import Placement, UsagePercents
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, METRIC, PLACEMENT, POLICY, SCORE, ZONES
from slacktide.schemas.zones import NodeZones
from slacktide.streams.decisions.cores.placement import rules_of
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.decisions.load.load_aware_estimator import Factors, Percents, Thresholds, own_thresholds
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, check_node, place_of

log = logging.getLogger(__name__)

KINDS: dict[str, type[Figures]] = {SCORE.name: NodeScore, METRIC.name: NodeMetric, ALLOCATABLE.name: NodeAllocatable}
YIELD_EVERY = 20
"""Records between two yields to the event loop: a kube-scheduler waits for each response."""


class TopicReader:
    """Reads topics; reconnects after errors. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(
        self,
        bootstrap: Cluster,
        view: View,
        args: PlacementArgs,
        to_dead_letter: Callable[[Record, str], None],
        clock: Clock,
    ) -> None:
        self.whole = False
        """Whether a complete backlog was ever read."""
        self._live = False
        """Whether the backlog at connecting was read."""
        self._reader = TailReader(
            bootstrap, (*KINDS, ZONES.name, INVENTORY.name, POLICY.name), client_id="slacktide-scheduler", whole=True
        )
        self._following = Following(self._reader, away="the state of nodes is not updated", clock=clock)
        self._view = view
        self._writer = LastWriter()
        self._coverage = Coverage()
        self._policies = policies.InForce()
        self._args, self._to_dead_letter, self._clock = args, to_dead_letter, clock

    @property
    def trouble(self) -> str:
        """Why nothing is read, or the policy is invalid; "": all is well."""
        return self._following.trouble or self._policies.refused

    async def run(self) -> None:
        """Run until cancelled."""
        await self._following.run(self._begun, self._receive_all)

    def _begun(self) -> None:
        self._live = False

    async def _receive_all(self, records: list[Record], now_s: float) -> None:
        now_ms = self._clock.wall_ms()
        for number, record in enumerate(records):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            # A backlog record is as old as its timestamp; a new one counts as fresh.
            age_s = 0.0 if self._live else max(0, now_ms - record.timestamp_ms) / 1000
            self._receive(record, received_s=now_s - age_s, logged_s=now_ms / 1000 - age_s)
        if not self._live and await self._reader.caught_up():
            self._live = self.whole = True

    def _receive(self, record: Record, *, received_s: float, logged_s: float) -> None:
        node = (record.key or b"").decode(errors="replace")
        try:
            if record.topic == POLICY.name:
                # If it is invalid, the last valid one stays in force.
                if self._policies.take(record.key, record.value, place_of(record)):
                    policy = self._policies.policy
                    free = policy.colocation.free_class_enable
                    self._view.dry_run = policy.placement.dry_run
                    self._view.govern(governed(self._args, policy.placement, free_class_enable=free))
            elif record.topic == INVENTORY.name:
                self._described(record, node)
            elif record.topic == ZONES.name and record.value is None:
                self._view.forget_zones(node)
            elif record.topic == ZONES.name:
                zones = decode(record.value, NodeZones)
                check_node(node, zones.node, "NodeZones")
                self._view.take_zones(zones, published_s=received_s)
            elif is_heartbeat(record.key):
                self._view.cover(self._coverage.receive(record, received_s), KINDS[record.topic], received_s=received_s)
            elif record.value is None:  # the worker removed the node's figures
                self._view.forget(node, KINDS[record.topic])
            else:
                figures = decode(record.value, KINDS[record.topic])
                check_node(node, figures.node, type(figures).__name__)
                self._view.receive(figures, received_s=received_s, logged_s=logged_s)
        except Exception as exc:  # noqa: BLE001 - one record stops nothing
            metrics.REFUSED.labels(record.topic).inc()
            self._to_dead_letter(record, failure("place", exc))

    def _described(self, record: Record, node: str) -> None:
        """Read a node's capacity and own thresholds; if these are invalid, the cluster's apply."""
        if record.value is None:
            self._view.limit(node, Thresholds())
            self._view.has(node, None)
            return
        inventory = decode(record.value, NodeInventory)
        check_node(node, inventory.node, "NodeInventory")
        if not self._writer.take(inventory):
            return
        self._view.has(node, Size.of(inventory.facts))
        self._view.rule(node, rules_of(inventory.facts))
        try:
            self._view.limit(node, own_thresholds(inventory.facts.annotations))
        except BadMessageError as exc:
            log.warning("ignored invalid thresholds of a node", extra={"node": node, "why": str(exc)})
            self._view.limit(node, Thresholds())


def governed(args: PlacementArgs, policy: Placement, *, free_class_enable: bool = False) -> PlacementArgs:
    """Apply the policy's thresholds and factors, and whether free-tier pods use free resources."""
    prod = policy.prod_usage
    thresholds = replace(
        args.load.thresholds, usage=_percents(policy.usage), prod=None if prod == UsagePercents() else _percents(prod)
    )
    factors = Factors(policy.factors.cpu_pct, policy.factors.mem_pct)
    load = replace(args.load, thresholds=thresholds, factors=factors, free_class_enable=free_class_enable)
    return replace(args, load=load)


def _percents(given: UsagePercents) -> Percents:
    return Percents(given.cpu_pct or 0, given.mem_pct or 0)


POLL_S = 0.1


class Sent:
    """Reads placements that may not be bound yet.

    ``own``: whether this process placed the pod of this uid; then it knows more than the record.
    ``pods_known``: whether pods were listed; before that a placed pod's requests are unknown.
    ``leave`` is called for each placement with the pod's uid and its time, UTC epoch in ms.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: View,
        own: Callable[[str], bool],
        pods_known: Callable[[], bool],
        clock: Clock,
        leave: Callable[[str, int], None],
    ) -> None:
        self.whole = False
        """Whether all earlier placements were read."""
        self._reader = TailReader(
            cluster,
            (PLACEMENT.name,),
            client_id="slacktide-scheduler-sent",
            back_ms=round(BINDING_S * 1000),
            now_ms=clock.wall_ms,
        )
        self.following = Following(self._reader, away="pods that other replicas placed are not counted", clock=clock)
        self._view, self._own, self._pods_known = view, own, pods_known
        self._leave, self._clock = leave, clock

    async def run(self) -> None:
        """Run until cancelled."""
        while not self._pods_known():  # noqa: ASYNC110 - a plain value, filled by the watch
            await asyncio.sleep(POLL_S)
        await self.following.run(lambda: None, self._read)

    async def _read(self, records: list[Record], now_s: float) -> None:
        now_ms = self._clock.wall_ms()
        for record in records:
            try:
                placement = decode(record.value, PodPlacement)
            except BadMessageError:  # an invalid record does not count
                continue
            self._leave(placement.pod_uid, placement.decided_ms)
            if not self._own(placement.pod_uid):
                age_s = max(0, now_ms - record.timestamp_ms) / 1000
                node = placement.best[0].node if placement.passed and placement.best else ""
                self._view.sent(
                    (placement.namespace, placement.name),
                    placement.pod_uid,
                    node,
                    until_s=now_s + BINDING_S - age_s,
                    at_s=self._clock.wall_ms() / 1000 - age_s,
                    cpus=placement.best[0].cores if node else "",
                )
        if not self.whole and await self._reader.caught_up():
            self.whole = True
