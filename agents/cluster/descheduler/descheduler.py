"""Runs and publishes descheduling passes in the leading bridge, and carries them out unless it is a dry run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.descheduler import metrics
from slacktide.agents.cluster.descheduler.evicting import Account, Evicting, ToDeadLetter
from slacktide.agents.cluster.descheduler.passes import Cluster, MetricOf, Passes, Place
from slacktide.agents.cluster.descheduler.pod import DeschedulerPod, PodObject, parsed
from slacktide.agents.cluster.ignored_fields import IgnoredFields
from slacktide.agents.cluster.watching import PodSource
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.together import until_one_ends
from slacktide.schemas import connection
from slacktide.schemas.codec import encode
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.errors import LogError
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.topics import AUDIT, DESCHEDULING, OUTCOME
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, event

log = logging.getLogger(__name__)

SOURCE = "bridge"
LOOK_S, LAST_S = 1.0, 3.0


class Descheduler:
    """One term. Without thresholds in the policy it does nothing, and watches no pods.

    ``to_dead_letter`` receives invalid records, each with the reason. ``sign`` adds the node proof to a record.
    """

    def __init__(
        self,
        bootstrap: connection.Cluster,
        metric_of: MetricOf,
        epoch: int,
        replica: str,
        to_dead_letter: ToDeadLetter,
        clock: Clock,
        ignored: IgnoredFields,
        sign: Callable[[Out], Out] = lambda out: out,
    ) -> None:
        self._sign = sign
        self._trouble = ""
        self._cluster = Cluster()
        self._ignored = ignored
        self._pods = self._pod_source()
        self._passes = Passes(epoch)
        self._account = Account(bootstrap, epoch, to_dead_letter, clock)
        self._evicting = Evicting(self._account, self._send, self._left, self._cluster.may_go, replica, clock)
        self._metric_of = metric_of
        self._policy = DEFAULT
        self._changed = asyncio.Event()
        self._clock = clock
        self._sender = Sender(bootstrap, client_id="slacktide-bridge-descheduling", acks="all")

    @property
    def trouble(self) -> str:
        """Why passes or evictions fail; "": they do not."""
        if not self._policy.descheduling.wanted:
            return ""
        acting = "" if self._policy.descheduling.dry_run else self._account.trouble or self._evicting.trouble
        return self._pods.trouble or self._trouble or acting

    def node(self, place: Place) -> None:
        """Add or update a node."""
        self._cluster.node(place)

    def removed(self, name: str) -> None:
        """Remove a node."""
        self._cluster.removed(name)

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""
        if policy.descheduling != self._policy.descheduling:
            self._changed.set()
        self._policy = policy

    def _pod_source(self) -> PodSource[PodObject, DeschedulerPod]:
        return PodSource(
            PodObject,
            lambda item, noted: parsed(item.plain(), noted),
            self._cluster,
            "this pod is never evicted",
            self._ignored,
        )

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._changed.clear()
                metrics.OVER.set(0)  # after a policy change
                self._pods, self._trouble = self._pod_source(), ""
                works: list[Coroutine[Any, Any, Any]] = [self._changed.wait()]
                if self._policy.descheduling.wanted:
                    works += [self._pods.run(api), self._each(api)]
                    works += [] if self._policy.descheduling.dry_run else [self._account.run()]
                else:
                    works += [self._flush_rest()]
                await until_one_ends(*works)
        finally:
            metrics.OVER.set(0)
            with suppress(LogError, TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._evicting.flush()
            await self._sender.close()

    async def _flush_rest(self) -> None:
        """Publish outcomes of evictions that were in progress when the policy disabled them."""
        while True:
            with suppress(LogError):
                await self._evicting.flush()
            await asyncio.sleep(LOOK_S)

    async def _each(self, api: ApiServer) -> None:
        interval_s = self._policy.descheduling.interval_s
        due_s = mono_s(self._clock) + interval_s
        while True:
            await asyncio.sleep(max(0.0, due_s - mono_s(self._clock)))
            due_s = mono_s(self._clock) + interval_s
            if self._pods.trouble:
                continue  # pod locations may be out of date
            done = await self._look()
            _count(done)
            try:
                await self._send([_out(done)])
                await self._evicting.flush()  # a policy change during an eviction may have left it unpublished
                if not done.dry_run:
                    await self._evicting.carry_out(api, done, due_s)
                self._trouble = ""
            except LogError as exc:
                self._trouble = str(exc)

    async def _look(self) -> DeschedulingPass:
        """Run a pass on a thread, since it takes tenths of a second."""
        cluster = self._cluster.copy()
        metrics_by_node = {node: self._metric_of(node) for node in cluster.nodes}
        now_s, now_ms = mono_s(self._clock), self._clock.wall_ms()
        return await asyncio.to_thread(self._passes.next, cluster, metrics_by_node.get, self._policy, now_s, now_ms)

    def _left(self, node: str) -> None:
        self._passes.left(node, mono_s(self._clock))

    async def _send(self, records: Collection[Out]) -> None:
        if not self._sender.connected:
            await self._sender.connect([DESCHEDULING.name, OUTCOME.name, AUDIT.name])
        await self._sender.send([self._sign(record) for record in records])


def _out(done: DeschedulingPass) -> Out:
    name = f"{done.epoch}/{done.number}"
    return event(DESCHEDULING.name, name, encode(done), source=SOURCE, event_id=name, event_ms=done.decided_ms)


def _count(done: DeschedulingPass) -> None:
    name = f"{done.epoch}/{done.number}"
    metrics.PASSES.labels(done.bound).inc()
    metrics.CHOSEN.labels("yes" if done.dry_run else "no").inc(done.terms["evicted_pods"])
    metrics.OVER.set(done.terms["over_nodes"])
    for victim in done.victims:
        log.info(
            "a pod would be selected for eviction" if done.dry_run else "a pod is selected for eviction",
            extra={"pod": f"{victim.namespace}/{victim.name}", "node": victim.node, "pass": name},
        )
