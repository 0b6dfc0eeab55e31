"""Runs the node agent: samples on time even if Kafka, the disk or a file is slow or unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from slacktide.agents.clock import Clock, SystemClock
from slacktide.agents.files import Watched
from slacktide.agents.http import Access
from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.ahead import Ahead, AheadSettings
from slacktide.agents.node.apiserver import NodeWatch, Removal
from slacktide.agents.node.evict.eviction_client import EvictionClient
from slacktide.agents.node.forecast import ForecastPublisher, Trainer
from slacktide.agents.node.inventory import Description, Joined, Lister, PodFindings, Policies, PublishedNode
from slacktide.agents.node.kernel import Kernel
from slacktide.agents.node.link import Link
from slacktide.agents.node.metrics import AgentMetrics, Cause, memory_of
from slacktide.agents.node.proof import Enrolment, Prover
from slacktide.agents.node.reporter import ends_or_stops, reason_of
from slacktide.agents.node.spool import DiskSpool
from slacktide.agents.node.state import Identity, State, Suspended, Switch, forget
from slacktide.agents.node.tuned import Tuned
from slacktide.agents.node.zones.exclusive import ExclusiveCpus
from slacktide.agents.node.zones.publisher import ZonesFolders, ZonesPublisher, ZonesRecords
from slacktide.schemas.codec import M, decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.health import Health
from slacktide.schemas.inventory import NodeInventory, unended
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.effective import colocation_on, resource_threshold_on
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.writer import LastWriter
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

WATCH_S = 1.0
STAMP_S = 0.1
"""How often the kubelet's CPU manager state is checked: a pod starts soon after its CPUs are assigned."""
SWITCH_S = 0.5
DRAIN_S = 2.0
OVERDUE_S_MIN = 0.0005
"""A timer may fire early. It is then set again, at least this far ahead, to avoid a busy loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Connections and intervals of one node agent."""

    node: str
    bootstrap: Cluster
    inventory: Path
    state_folder: Path
    """This agent's own folder: start counter, spool, last inventory and policy."""
    machine: Callable[[], Mapping[str, Any]] | None = None
    """Describes the Node if the inventory holds only pods; None: the inventory must hold a Node."""
    from_kafka: bool = False
    """Use the facts that the bridge publishes, once Kafka has them, instead of the file."""
    lister: Lister | None = None
    """Lists the pods; None: the inventory does."""
    enrol: Access | None = None
    """Where the agent enrols for the key that signs its records; None: records are unsigned."""
    eviction_client: EvictionClient | None = None
    """Client of the Eviction API; None: no API server, pods are ended through their cgroups."""
    removal: Removal | None = None
    """Checks at exit whether the agent is uninstalled; None: never, and limits stay in force."""
    node_watch: NodeWatch | None = None
    """Watches this Node's annotations; None: the inventory's annotations are used."""
    exclusive: ExclusiveCpus | None = None
    """Finds exclusive CPUs of pods; None: not looked for."""
    zones: ZonesFolders | None = None
    """Where NUMA zones are read; None: zones are not published."""
    sample_interval_ms: int = 1_000
    fetch_wait_ms: int = 500
    """``fetch.max.wait.ms``. The embedded broker always waits that long, which delays a command by half of it."""
    agent: AgentSettings = field(default_factory=AgentSettings)
    ahead: AheadSettings = field(default_factory=AheadSettings)


async def run(
    kernel: Kernel, settings: LoopSettings, stop: asyncio.Event, health: Health, clock: Clock | None = None
) -> None:
    """Run one node's agent until ``stop`` is set, then report what is left and release the state folder.

    Raises:
        SlacktideError: another agent uses the state folder, or neither node nor pods are known.
    """
    clock = SystemClock() if clock is None else clock
    identity = Identity(settings.state_folder, start_ms=clock.wall_ms())
    try:
        # In a thread: listing the pods may be slow.
        description = await asyncio.to_thread(_described, settings)
        loop = AgentLoop(kernel, settings, identity.boot_id, health, clock, description)
        await loop.run(stop)
        if loop.removed:
            forget(settings.state_folder)
    finally:
        identity.release()


class AgentLoop:
    """Runs one agent. Its core is called on the event loop's thread only, so nothing needs a lock."""

    def __init__(
        self,
        kernel: Kernel,
        settings: LoopSettings,
        boot_id: str,
        health: Health,
        clock: Clock,
        description: Description,
    ) -> None:
        self._settings = settings
        self._health = health
        self._clock = clock
        self._metrics = AgentMetrics(settings.node)
        self._state = State(settings.state_folder)
        self._spool = DiskSpool(settings.state_folder / "spool")
        self._inventory = description
        self._writer = LastWriter()
        self._refused = ""
        self._noted: set[str] = set()
        self._pod_findings = PodFindings(settings.node, settings.eviction_client, clock.wall_ms)
        self._policies = Policies(self._state, self._metrics)
        prover = Prover(settings.node, settings.state_folder if settings.enrol else None, clock.wall_ms)
        self._enrolment = Enrolment(settings.enrol, prover, self._metrics) if settings.enrol else None
        self._link = Link(
            bootstrap=settings.bootstrap,
            node=settings.node,
            fetch_wait_ms=settings.fetch_wait_ms,
            spool=self._spool,
            listener=self,
            metrics=self._metrics,
            now_ms=clock.wall_ms,
            turned=partial(health.turned, "sending samples"),
            sign=prover.sign,
        )
        self._agent = NodeAgent(
            node=settings.node,
            boot_id=boot_id,
            kernel=kernel,
            spool=self._spool,
            clock=clock,
            policy=self._policies.policy,
            facts=self._inventory.value.facts,
            pods=self._inventory.value.pods,
            settings=settings.agent,
            tuned=Tuned(settings.state_folder),
            eviction_client=settings.eviction_client,
            concluded=self._concluded,
            exclusive=self._exclusive_cpus(),
        )
        self._trainer = Trainer(settings.node, boot_id, settings.agent.train_every_ms)
        self._forecasts = self._forecaster(prover)
        self._zones = None if settings.zones is None else self._publisher(settings.zones, boot_id, prover)
        self._ahead = Ahead(
            settings.ahead,
            take=self._take,
            capacity_milli=lambda: self._inventory.value.facts.capacity.cpu_milli,
            clock=clock,
            metrics=self._metrics,
            by_pressure=self._by_pressure,
            kept=self._state.gate(),
        )
        self._switch = Switch(settings.state_folder, watched=settings.node_watch is not None)
        self._suspended: Suspended | None = None
        self.removed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._answered = False
        self._closing = False
        log.info("starting", extra={"node": settings.node, "boot_id": boot_id, "policy": self._policies.policy.version})

    def _publisher(self, folders: ZonesFolders, boot_id: str, prover: Prover) -> ZonesPublisher:
        node = self._settings.node
        return ZonesPublisher(
            ZonesRecords(folders, node=node, boot_id=boot_id, clock=self._clock),
            node=node,
            pods=lambda: self._agent.pods,
            bootstrap=self._settings.bootstrap,
            sign=prover.sign,
            refuse=self._link.refuse,
            metrics=self._metrics,
        )

    def _forecaster(self, prover: Prover) -> ForecastPublisher:
        return ForecastPublisher(
            self._trainer,
            node=self._settings.node,
            state=self._state,
            colocation=lambda: colocation_on(self._policies.policy, self._inventory.value.facts),
            bootstrap=self._settings.bootstrap,
            sign=prover.sign,
            refuse=self._link.refuse,
            metrics=self._metrics,
            clock=self._clock,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until ``stop`` is set."""
        self._look_at_switch()  # before the start, which may continue evictions
        self._agent.start()
        self._keep_inventory()
        self._watch_node()
        self._follow_replies()
        self._ahead.start()
        works = [self._link.run, self._forecasts.run, self._keep_watching, self._keep_looking_at_switch]
        works += [one.run for one in (self._enrolment, self._settings.removal, self._zones) if one is not None]
        beside = [asyncio.create_task(work()) for work in works]
        ticking = asyncio.create_task(self._tick(stop))
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
            for task in (ticking, *beside):
                task.cancel()
            await asyncio.gather(ticking, *beside, return_exceptions=True)
            await self._link.close()
            if self._zones is not None:
                await self._zones.close()
            self._spool.close()

    def commands(self, records: list[Record]) -> None:
        """Apply commands. Send a keyframe at once if the stream lacks pods or facts."""

        def answered(command: NodeCommand) -> None:
            if self._counts(command):
                self._agent.answered(command)
                self._answered = True

        self._each([] if self._closing else records, NodeCommand, answered)
        if self._agent.keyframe_wanted and not self._closing:
            self._take("keyframe")
        self._arm()

    def _counts(self, command: NodeCommand) -> bool:
        """Return whether it answers a sample of this node: a sample whose proof was refused may come from elsewhere."""
        if self._enrolment is None:
            return True
        if command.boot_id == self._agent.boot_id:
            self._enrolment.answered(command.proof)
        return command.proof in PROVEN

    def _each(self, records: list[Record], kind: type[M], use: Callable[[M], None]) -> None:
        """Process each record except tombstones. Unreadable or unusable records become dead letters."""
        for record in records:
            if record.value is None:
                continue
            try:
                use(decode(record.value, kind))
            except (BadMessageError, ArithmeticError, ValueError, TypeError, LookupError) as exc:
                self._link.to_dead_letter(record, failure("apply", exc))

    def credits(self, records: list[Record], age_s: float) -> None:
        """Receive eviction credit. Tombstones are ignored: leases expire by themselves soon."""
        since_ns = self._clock.mono_ns() - round(age_s * 1e9)
        self._each(records, EvictionCredit, lambda credit: self._agent.credit(credit, since_ns))

    def policies(self, records: list[Record]) -> None:
        """Use the policy of the newest valid record."""
        if self._policies.read(records, self._link.to_dead_letter):
            self._agent.policy(self._policies.policy)
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

        self._each(records, NodeInventory, described_anew)
        if news and not self._closing:
            self._keep_inventory()
            self._agent.inventory(description.value.facts, description.value.pods)

    async def _tick(self, stop: asyncio.Event) -> None:
        """Sample at each multiple of the interval, unless one was just taken. Count missed ticks; do not catch up."""
        interval_ns = self._settings.sample_interval_ms * 1_000_000
        due_ns = self._clock.mono_ns()
        while not stop.is_set():
            if not self._ahead.covers_tick():
                self._take("tick")
            due_ns += interval_ns
            missed = max(0, (self._clock.mono_ns() - due_ns) // interval_ns)
            self._metrics.skipped.inc(missed)
            due_ns += missed * interval_ns
            wait_s = (due_ns - self._clock.mono_ns()) / 1e9
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, wait_s)):
                    await stop.wait()

    def _take(self, cause: Cause) -> None:
        began_ns = self._clock.mono_ns()
        self._agent.credit_account.log_is(away=bool(self._link.away), now_ns=began_ns)
        sample = self._agent.take(
            ls_lately_cpu_milli=self._ahead.lately_milli(cause), ls_pressure=self._ahead.pressure()
        )
        self._metrics.taken(sample, cause, self._clock.mono_ns() - began_ns)
        facts = self._inventory.value.facts
        self._metrics.memory(memory_of(sample, facts, resource_threshold_on(self._policies.policy, facts)))
        self._ahead.sampled(cause, sample.seq, began_ns)
        self._trainer.saw(sample, self._agent.pods)
        self._link.offer(sample, self._agent.facts, self._agent.pods)
        self._health.turned("sampling")
        self._arm()
        self._report_health()

    def _by_pressure(self) -> bool:
        threshold = resource_threshold_on(self._policies.policy, self._inventory.value.facts)
        return threshold.enable and threshold.cpu_suppress_signal != "usage"

    def _arm(self) -> None:
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
        if ends_or_stops(outcome) and outcome.result in {"applied", "failed"}:
            _log_act(outcome)

    def _follow_replies(self) -> None:
        """Process replies of the Eviction API as soon as they arrive. Each tick reads them, too."""
        loop, eviction_client = asyncio.get_running_loop(), self._settings.eviction_client
        if eviction_client is not None:
            eviction_client.wake = partial(loop.call_soon_threadsafe, self._replied)

    def _replied(self) -> None:
        if not self._closing:
            self._agent.replied()

    def _watch_node(self) -> None:
        loop, watch = asyncio.get_running_loop(), self._settings.node_watch

        def show(annotations: Mapping[str, str]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._annotated, annotations)

        if watch is not None:
            watch.start(show)

    def _annotated(self, annotations: Mapping[str, str]) -> None:
        self._switch.shown(annotations)
        self._look_at_switch()

    async def _keep_looking_at_switch(self) -> None:
        while True:
            await asyncio.sleep(SWITCH_S)
            self._look_at_switch()

    def _look_at_switch(self) -> None:
        """Suspend or resume the node as annotation, file and policy require."""
        now = self._switch.suspended(self._inventory.value.facts.annotations, self._policies.policy)
        self._metrics.suspended(None if now is None else now.by)
        if now == self._suspended or self._closing:
            return
        before, self._suspended = self._suspended, now
        reason = "" if now is None else now.reason
        if now is None:
            log.warning("the node is no longer suspended", extra={"before": "" if before is None else before.reason})
        else:
            log.warning("the node is suspended: limits are lifted, no pod is evicted", extra={"by": reason})
        self._agent.suspend(reason)
        if self._settings.eviction_client is not None:
            uid = "" if self._settings.node_watch is None else self._settings.node_watch.uid
            self._settings.eviction_client.note_node(self._settings.node, uid, reason, at_ms=self._clock.wall_ms())

    def _report_health(self) -> None:
        guard = self._agent.in_charge == "guard"
        spool = self._spool
        self._metrics.stands(guard=guard, spool=(spool.bytes_used, spool.waiting, spool.failures, spool.torn))
        self._metrics.lacks(self._agent.knobs_lacking)
        self._metrics.evicting(self._agent.evicting)
        self._health.not_ready = self._unready()
        if self._inventory.refused:
            self._health.not_fresh = f"the inventory was rejected: {self._inventory.refused}"
        elif self._policies.refused:
            self._health.not_fresh = f"a policy was rejected: {self._policies.refused}"
        else:
            unanswered = "the guard decides: no answers in time" if guard else self._unanswered()
            self._health.not_fresh = self._unproven() or unanswered

    def _unready(self) -> str:
        """Return why this agent is not ready; "": it is. A policy that every agent refuses does not count."""
        if self._link.away:
            return f"Kafka is unreachable: {self._link.away}"
        if self._inventory.unlisted:
            return f"the list of pods is outdated: {self._inventory.unlisted}"
        return self._link.too_large or self._policies.diverges

    def _unproven(self) -> str:
        return self._enrolment.trouble if self._enrolment and self._policies.policy.node_proof == "required" else ""

    def _unanswered(self) -> str:
        return "" if self._answered else "no answer yet"

    async def _keep_watching(self) -> None:
        """Each second: follow new and removed cgroups, save the pressure gate, reload a changed inventory."""
        while True:
            await self._pause()
            self._ahead.renew()
            if (gate := self._ahead.gate()) is not None:
                self._state.keep_gate(gate, self._clock.mono_ns())
            changed = self._inventory.changed and await asyncio.to_thread(self._inventory.poll)
            if changed:
                self._keep_inventory()
            exclusive = self._exclusive_cpus()
            if changed or exclusive != self._agent.exclusive:
                self._agent.inventory(self._inventory.value.facts, self._inventory.value.pods, exclusive)

    async def _pause(self) -> None:
        exclusive = self._settings.exclusive
        if exclusive is None or not exclusive.watched:
            await asyncio.sleep(WATCH_S)
            return
        for _ in range(round(WATCH_S / STAMP_S)):
            await asyncio.sleep(STAMP_S)
            if exclusive.changed():
                return

    def _exclusive_cpus(self) -> Mapping[str, str]:
        found = self._settings.exclusive
        return {} if found is None else found.look(self._inventory.value.pods)

    def _keep_inventory(self) -> None:
        """Log new findings about the inventory, and save it for the next start."""
        refused, known = self._inventory.refused, self._inventory.value
        if refused and refused != self._refused:
            log.error("%s", refused)
        self._refused = refused
        for note in known.notes:
            if note not in self._noted:
                log.warning("%s", note)
        self._noted = set(known.notes)
        self._pod_findings.look(known.pods)
        if not refused:
            log.info("inventory in force", extra={"node": known.facts.name, "pods": len(known.pods)})
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


def _described(settings: LoopSettings) -> Description:
    """Return the node and its pods; if they cannot be read, as an earlier run saved them."""
    kept = State(settings.state_folder).inventory()
    last = None if kept is None else Described(facts=kept.facts, pods=kept.pods, notes=())
    node = settings.node
    machine = settings.machine
    file = Watched(
        settings.inventory, lambda document, name: described(document, name, node, machine=machine), last=last
    )
    pods = None if kept is None else kept.pods
    description = file if settings.lister is None else Joined(file, settings.lister, last=pods)
    if not settings.from_kafka:
        return description
    return PublishedNode(description, last=kept.facts if kept is not None and kept.from_kafka else None)


def _log_act(outcome: NodeOutcome) -> None:
    """Log an eviction or freeze, for readers who search the node's log for a pod. Details are in the outcome."""
    pod = outcome.pod
    assert pod is not None
    extra = {"rule": outcome.rule, "bound": outcome.bound, "result": outcome.result, "command_id": outcome.command_id}
    log.warning("pod %s/%s: %s", pod.namespace, pod.name, reason_of(outcome), extra=extra)
