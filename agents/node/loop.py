"""Runs the node agent: samples on time even if Kafka, the disk or a file is slow or unavailable."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from slacktide.agents.clock import Clock, SystemClock
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.ahead import EARLY, Ahead, reacts_to_pressure
from slacktide.agents.node.condition import why_not_fresh, why_not_ready
from slacktide.agents.node.forecast import ForecastPublisher, Trainer
from slacktide.agents.node.interfaces import Beside, Kernel
from slacktide.agents.node.inventory import Description, PodFindings, Policies, PublishedNode, node_description
from slacktide.agents.node.knobs import Tuned
from slacktide.agents.node.link import Link
from slacktide.agents.node.metrics import AgentMetrics, Cause, memory_of
from slacktide.agents.node.proof import Enrolment, Prover
from slacktide.agents.node.reporter import log_act_on_pod
from slacktide.agents.node.services import ServiceMeter
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.slopes import Slopes
from slacktide.agents.node.spool import DiskSpool
from slacktide.agents.node.state import State, Switch, forget, identity_of
from slacktide.agents.node.zones.publisher import ZonesPublisher, ZonesRecords
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.health import Health
from slacktide.schemas.inventory import LastWriter, NodeFacts, NodeInventory, unended
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.effective import colocation_on, resource_threshold_on
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.topics import FORECAST, SERVICE_MINUTE, ZONES
from slacktide.streams.records import Record
from slacktide.streams.tasks import ended

log = logging.getLogger(__name__)

WATCH_S = 1.0
STAMP_S = 0.1
"""How often the kubelet's CPU manager state is checked: a pod starts soon after its CPUs are assigned."""
SWITCH_S = 0.5
DRAIN_S = 2.0
TAKEOVER_S = 20.0
"""How long an agent in a pod waits for another one to stop, which has 15 s."""
OVERDUE_S_MIN = 0.0005
"""A timer may fire early. It is then set again, at least this far ahead, to avoid a busy loop."""


async def run(
    kernel: Kernel, settings: LoopSettings, stop: asyncio.Event, health: Health, clock: Clock | None = None
) -> None:
    """Run one node's agent until ``stop`` is set, then report what is left and release the state folder.

    Raises:
        SlacktideError: another agent uses the state folder, or neither node nor pods are known.
    """
    clock = SystemClock() if clock is None else clock
    # A node that moves to another DaemonSet gets the pod of the new one while that of the old one stops.
    wait_s = 0.0 if settings.node_watch is None else TAKEOVER_S
    identity = await identity_of(settings.state_folder, stop, start_ms=clock.wall_ms(), wait_s=wait_s)
    try:
        saved = State(settings.state_folder).inventory()
        of = partial(node_description, machine=settings.machine, lister=settings.lister, from_kafka=settings.from_kafka)
        # In a thread: listing the pods may be slow.
        description = await asyncio.to_thread(of, settings.inventory, settings.node, saved)
        loop = AgentLoop(kernel, settings, identity.boot_id, health, clock, description)
        await loop.run(stop)
        if loop.removed:
            forget(settings.state_folder)
    finally:
        identity.release()


class AgentLoop:
    """Runs one agent. Its core is called on the event loop's thread only, so nothing needs a lock."""

    def __init__(
        self, kernel: Kernel, settings: LoopSettings, boot_id: str, health: Health, clock: Clock, described: Description
    ) -> None:
        self._settings, self._health, self._clock, self._inventory = settings, health, clock, described
        node, bootstrap = settings.node, settings.bootstrap
        self._metrics = AgentMetrics(node)
        self._state = State(settings.state_folder)
        self._spool = DiskSpool(settings.state_folder / "spool")
        self._writer = LastWriter()
        self._pod_findings = PodFindings(node, settings.eviction_client, clock.wall_ms)
        self._policies = Policies(self._state, self._metrics)
        prover = Prover(node, settings.state_folder if settings.enrol else None, clock.wall_ms)
        self._enrolment = Enrolment(settings.enrol, prover, self._metrics) if settings.enrol else None
        self._slopes = Slopes(self._look_at_slopes, self._state)
        self._link = Link(
            bootstrap=bootstrap,
            node=node,
            fetch_wait_ms=settings.fetch_wait_ms,
            spool=self._spool,
            listener=self,
            slopes=self._slopes,
            metrics=self._metrics,
            now_ms=clock.wall_ms,
            turned=partial(health.turned, "sending samples"),
            sign=prover.sign,
        )
        self._agent = NodeAgent(
            node=node,
            boot_id=boot_id,
            kernel=kernel,
            spool=self._spool,
            clock=clock,
            policy=self._policies.policy,
            facts=self._facts(),
            pods=described.value.pods,
            settings=settings.agent,
            tuned=Tuned(settings.state_folder),
            eviction_client=settings.eviction_client,
            concluded=self._concluded,
            exclusive=self._exclusive_cpus(),
        )
        self._trainer = Trainer(node, boot_id, settings.agent.train_every_ms)
        channel = self._link.channel("forecasts", FORECAST)
        self._forecasts = ForecastPublisher(self._trainer, channel, self._state, clock, self._colocation)
        self._publishers: list[ZonesPublisher | ServiceMeter] = []
        if settings.zones is not None:
            records = ZonesRecords(settings.zones, node=node, boot_id=boot_id, clock=clock)
            channel, agent = self._link.channel("zones", ZONES), self._agent
            self._publishers.append(ZonesPublisher(records, channel, pods=lambda: agent.pods, metrics=self._metrics))
        if settings.services is not None:
            channel = self._link.channel("minutes", SERVICE_MINUTE)
            meter = ServiceMeter(settings.services, clock, self._agent, self._colocation, channel, self._metrics)
            self._publishers.append(meter)
        self._ahead = self._ahead_of_ticks()
        self._switch = Switch(settings.state_folder, watched=settings.node_watch is not None)
        self.removed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._answered = self._closing = False
        log.info("starting", extra={"node": node, "boot_id": boot_id, "policy": self._policies.policy.version})

    def _colocation(self) -> Colocation:
        return colocation_on(self._policies.policy, self._inventory.value.facts)

    def _facts(self) -> NodeFacts:
        """Return the node's facts, with what is learned of its services."""
        known = self._inventory.value
        return self._slopes.onto(known.facts, known.pods, self._colocation())

    def _look_at_slopes(self) -> None:
        """Use the facts anew if the largest slope of the node's services has changed."""
        facts, before = self._facts(), self._agent.facts
        changed = (facts.slope_permille, facts.slope_of) != (before.slope_permille, before.slope_of)
        if changed and not self._closing:
            self._agent.inventory(facts, self._inventory.value.pods)

    def _ahead_of_ticks(self) -> Ahead:
        return Ahead(
            self._settings.ahead,
            take=self._take,
            capacity_milli=lambda: self._inventory.value.facts.capacity.cpu_milli,
            clock=self._clock,
            metrics=self._metrics,
            by_pressure=lambda: reacts_to_pressure(self._threshold()),
            kept=self._state.gate(),
        )

    def _threshold(self) -> ResourceThreshold:
        return resource_threshold_on(self._policies.policy, self._inventory.value.facts)

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until ``stop`` is set."""
        self._look_at_switch()  # before the start, which may continue evictions
        self._agent.start()
        self._keep_inventory()
        self._follow_api_server()
        self._ahead.start()
        works = [self._link.run, self._forecasts.run, self._keep_watching, self._keep_looking_at_switch]
        works += [one.run for one in (self._enrolment, self._settings.removal, *self._publishers) if one is not None]
        beside = [asyncio.create_task(work()) for work in works]
        ticking = asyncio.create_task(self._ahead.tick(stop, self._settings.sample_interval_ms))
        try:
            done, _ = await asyncio.wait({ticking, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # only the tick ends normally; any other end is a bug
            await self._finish()
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            self._ahead.close()
            if self._settings.eviction_client is not None:
                self._settings.eviction_client.wake = lambda: None
            if self._settings.node_watch is not None:
                self._settings.node_watch.close()
            await ended(ticking, *beside)
            await self._link.close()
            for publisher in self._publishers:
                await publisher.close()
            self._spool.close()

    def awaits_answer(self) -> bool:
        """Return whether the newest sample is not answered yet."""
        return self._agent.awaits_answer

    def commands(self, records: list[Record]) -> None:
        """Apply commands. Send a keyframe at once if the stream lacks pods or facts."""

        def answered(command: NodeCommand) -> None:
            if self._enrolment is not None:
                if command.boot_id == self._agent.boot_id:
                    self._enrolment.answered(command.proof)
                if command.proof not in PROVEN:  # a sample whose proof was refused may come from elsewhere
                    return
            self._agent.answered(command)
            self._answered = True

        self._link.each([] if self._closing else records, NodeCommand, answered)
        if self._agent.keyframe_wanted and not self._closing:
            self._take("keyframe")
        self._arm()

    def credits(self, records: list[Record], age_s: float) -> None:
        """Receive eviction credit. Tombstones are ignored: leases expire by themselves soon."""
        since_ns = self._clock.mono_ns() - round(age_s * 1e9)
        self._link.each(records, EvictionCredit, lambda credit: self._agent.credit(credit, since_ns))

    def policies(self, records: list[Record]) -> None:
        """Use the policy of the newest valid record."""
        if self._policies.read(records, self._link.to_dead_letter):
            self._agent.policy(self._policies.policy)
            self._look_at_slopes()
            self._look_at_switch()

    def inventories(self, records: list[Record]) -> None:
        """Use the last record of the highest epoch. A removal of the node changes nothing here."""
        description = self._inventory
        if not isinstance(description, PublishedNode):
            return
        news = False

        def described_anew(inventory: NodeInventory) -> None:
            nonlocal news
            if inventory.facts.name == self._settings.node and self._writer.take(inventory):
                news = description.take(inventory.facts) or news

        self._link.each(records, NodeInventory, described_anew)
        if news and not self._closing:
            self._keep_inventory()
            self._agent.inventory(self._facts(), description.value.pods)

    def _take(self, cause: Cause) -> None:
        began_ns = self._clock.mono_ns()
        self._agent.credit_account.log_is(away=bool(self._link.away), now_ns=began_ns)
        reader, pods = self._settings.pod_pressure, self._agent.pods
        pod_pressure = None if reader is None else reader.due(pods, began_ns)
        beside = Beside(
            ls_lately_cpu_milli=self._ahead.lately_milli(cause),
            ls_pressure=self._ahead.pressure(),
            pod_pressure=pod_pressure or (),
        )
        sample = self._agent.take(beside, early=cause in EARLY)
        if pod_pressure is not None:
            self._metrics.pod_pressure(pod_pressure, pods)
        self._metrics.taken(sample, cause, self._clock.mono_ns() - began_ns)
        facts, dry_run = self._inventory.value.facts, self._settings.agent.dry_run
        self._metrics.memory(memory_of(sample, facts, self._threshold(), dry_run=dry_run))
        self._ahead.sampled(cause, sample, began_ns)
        self._trainer.saw(sample, self._agent.pods)
        self._link.offer(sample, self._agent.facts, self._agent.pods)
        self._health.turned("sampling")
        self._arm()
        self._report_health()

    def _arm(self) -> None:
        """Set the timer for the deadline of the newest answer."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        deadline_ns = self._agent.deadline_ns()
        if deadline_ns is not None and not self._closing:
            wait_s = max(OVERDUE_S_MIN, (deadline_ns - self._clock.mono_ns()) / 1e9)
            self._deadline = asyncio.get_running_loop().call_later(wait_s, self._overdue)

    def _overdue(self) -> None:
        self._deadline = None
        self._agent.overdue()
        self._arm()
        self._report_health()

    def _concluded(self, outcome: NodeOutcome) -> None:
        self._metrics.concluded(outcome)
        self._ahead.concluded(outcome)
        self._link.wake()
        log_act_on_pod(outcome)

    def _follow_api_server(self) -> None:
        """Process replies of the Eviction API, which each tick reads, too, and annotations of the Node as they come."""
        loop, watch = asyncio.get_running_loop(), self._settings.node_watch

        def replied() -> None:
            if not self._closing:
                self._agent.replied()

        def annotated(annotations: Mapping[str, str]) -> None:
            self._switch.shown(annotations)
            self._look_at_switch()

        def show(annotations: Mapping[str, str]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(annotated, annotations)

        if watch is not None:
            watch.start(show)
        if self._settings.eviction_client is not None:
            self._settings.eviction_client.wake = partial(loop.call_soon_threadsafe, replied)

    async def _keep_looking_at_switch(self) -> None:
        while True:
            await asyncio.sleep(SWITCH_S)
            self._look_at_switch()

    def _look_at_switch(self) -> None:
        """Suspend or resume the node as annotation, file and policy require."""
        now = self._switch.suspended(self._inventory.value.facts.annotations, self._policies.policy)
        self._metrics.suspended(None if now is None else now.by)
        if self._closing or not self._switch.changed_to(now):
            return
        reason = "" if now is None else now.reason
        self._agent.suspend(reason)
        if self._settings.eviction_client is not None:
            uid = "" if self._settings.node_watch is None else self._settings.node_watch.uid
            self._settings.eviction_client.note_node(self._settings.node, uid, reason, at_ms=self._clock.wall_ms())

    def _report_health(self) -> None:
        guard = self._agent.in_charge == "guard"
        spool, inventory, policies = self._spool, self._inventory, self._policies
        self._metrics.stands(guard=guard, spool=(spool.bytes_used, spool.waiting, spool.failures, spool.torn))
        self._metrics.lacks(self._agent.knobs_lacking)
        self._metrics.evicting(self._agent.evicting)
        unproven = "" if self._enrolment is None else self._enrolment.trouble
        self._health.not_ready = why_not_ready(self._link, inventory, policies)
        self._health.not_fresh = why_not_fresh(inventory, policies, unproven, guard=guard, answered=self._answered)

    async def _keep_watching(self) -> None:
        """Each second: follow new and removed cgroups, save the pressure gate, reload a changed inventory."""
        exclusive_cpus = self._settings.exclusive
        while True:
            if exclusive_cpus is None or not exclusive_cpus.watched:
                await asyncio.sleep(WATCH_S)
            else:
                for _ in range(round(WATCH_S / STAMP_S)):
                    await asyncio.sleep(STAMP_S)
                    if exclusive_cpus.changed():
                        break
            self._ahead.renew()
            if (gate := self._ahead.gate()) is not None:
                self._state.keep_gate(gate, self._clock.mono_ns())
            changed = self._inventory.changed and await asyncio.to_thread(self._inventory.poll)
            if changed:
                self._keep_inventory()
            exclusive = self._exclusive_cpus()
            if changed or exclusive != self._agent.exclusive:
                self._agent.inventory(self._facts(), self._inventory.value.pods, exclusive)

    def _exclusive_cpus(self) -> Mapping[str, str]:
        found = self._settings.exclusive
        return {} if found is None else found.look(self._inventory.value.pods)

    def _keep_inventory(self) -> None:
        """Log new findings about the inventory, and save it for the next start."""
        self._pod_findings.report(self._inventory)
        known = self._inventory.value
        from_kafka = isinstance(self._inventory, PublishedNode) and self._inventory.facts is not None
        self._state.keep_inventory(known.facts, unended(known.pods), from_kafka=from_kafka)

    async def _finish(self) -> None:
        """Stop acting. Publish the last outcomes if Kafka is available; else they stay in the spool."""
        self._closing = True
        if (gate := self._ahead.gate()) is not None:
            self._state.keep_gate(gate)
        self._ahead.close()
        self._forecasts.close()
        self._arm()
        removed = self._settings.removal is not None and await self._settings.removal.removed()
        self._agent.close(removed=removed)
        self.removed = removed and self._agent.holds_nothing
        if removed and not self.removed:
            log.error("some limits could not be removed: run slacktide agent restore on this node")
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._link.drain()
