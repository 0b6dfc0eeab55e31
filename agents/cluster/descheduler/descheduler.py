"""Runs and publishes descheduling passes in the leading bridge, and carries them out unless it is a dry run.

Pods are evicted through the Eviction API, within credit, with an outcome and an Event each. Nothing is evicted while
Kafka is unavailable. The next pass judges the remaining pods again. The governor grants credit as to a node: only on
request, and only to the newest epoch, so that a former leader gets none.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Literal

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.descheduler import metrics
from slacktide.agents.cluster.descheduler.passes import Cluster, MetricOf, Passes, Place
from slacktide.agents.cluster.descheduler.pod import FEATURE, DeschedulerPod, parsed
from slacktide.agents.cluster.events import About, EventSource, IgnoredFields, create_event
from slacktide.agents.cluster.watching import PodSource
from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS, ApiError, ApiRefusedError
from slacktide.schemas import connection
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.credit import DESCHEDULER, NO_CREDIT, EvictionCredit
from slacktide.schemas.descheduling import DeschedulingPass, Victim
from slacktide.schemas.errors import LogError, failure
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.topics import AUDIT, CREDIT, DESCHEDULING, OUTCOME
from slacktide.streams.decisions.evict.node_evict import audited, observed
from slacktide.streams.kafka import Following, Sender, TailReader
from slacktide.streams.records import Out, Record, event
from slacktide.streams.tasks import until_one_ends

log = logging.getLogger(__name__)

SOURCE = "bridge"
FLUSH_S, LAST_S = 1.0, 3.0


ToDeadLetter = Callable[[Record, str], None]


class Account:
    """The account of one term. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(self, bootstrap: connection.Cluster, epoch: int, to_dead_letter: ToDeadLetter, clock: Clock) -> None:
        self.boot_id = f"{epoch:012}-bridge"
        """Identifies the account; later terms sort higher."""
        self._credit_account = CreditAccount(self.boot_id)
        reader = TailReader(bootstrap, (CREDIT.name,), client_id="slacktide-bridge-credit")
        self._following = Following(reader, away="no pod is descheduled", clock=clock)
        self._to_dead_letter, self._clock = to_dead_letter, clock
        self._read_ns = clock.mono_ns()
        """What was not read by then had not arrived."""

    @property
    def trouble(self) -> str:
        """Why credit cannot be read; "": it can."""
        return self._following.trouble

    @property
    def spent(self) -> Spent:
        """Spent credit."""
        return Spent(evictions=self._credit_account.spent, epoch=self._credit_account.epoch)

    async def run(self) -> None:
        """Read credit until cancelled."""
        await self._following.run(self._begun, self._receive)

    def ready(self, namespace: str) -> bool:
        """Return whether a pod of the namespace may be evicted now."""
        return self._credit_account.ready(self._clock.mono_ns(), namespace)

    def reserve(self) -> None:
        """Reserve credit before the request to the API server."""
        self._credit_account.reserve(self._clock.mono_ns())

    def settle(self, *, goes: bool) -> None:
        """Settle the reservation: whether the pod was evicted, or may have been."""
        self._credit_account.settle(goes=goes)

    def _begun(self) -> None:
        self._read_ns = self._clock.mono_ns()

    async def _receive(self, records: list[Record], now_s: float) -> None:
        for record in records:
            if record.key == DESCHEDULER.encode() and record.value is not None:
                try:
                    self._credit_account.receive(decode(record.value, EvictionCredit), self._read_ns)
                except Exception as exc:  # noqa: BLE001 - one record stops nothing
                    self._to_dead_letter(record, failure("count credit", exc))
        self._read_ns = round(now_s * 1e9)


ASK_S, LOOK_S = 1.0, 0.1
HOLDS_S = 60.0
"""How long the decisions of a pass hold; later its figures are outdated."""
Result = Literal["applied", "refused", "failed"]


class Evicting:
    """Evictions of one term.

    ``send`` publishes to Kafka, or raises LogError. ``left`` is called with each node that a pod left, or may have.
    ``may_go``: whether the pod of this namespace, name and uid is still evictable.
    """

    def __init__(
        self,
        account: Account,
        send: Callable[[Collection[Out]], Awaitable[None]],
        left: Callable[[str], None],
        may_go: Callable[[str, str, str], bool],
        replica: str,
        clock: Clock,
    ) -> None:
        self.trouble = ""
        """Why the last eviction or its Event failed; "": it succeeded."""
        self._account, self._send, self._left, self._may_go = account, send, left, may_go
        self._source = EventSource(part="bridge", replica=replica, action="Evict")
        self._clock = clock
        self._unpublished: list[Out] = []
        self._asked_s = 0.0

    async def carry_out(self, api: ApiServer, done: DeschedulingPass, until_s: float) -> None:
        """Evict the pass's victims in order for up to a minute; those without credit are retried.

        The next pass is due at ``until_s``, monotonic.

        Raises:
            LogError: Kafka is unavailable; nothing is evicted until it is back.
        """
        if not done.victims:
            self.trouble = ""
        until_s = min(until_s, mono_s(self._clock) + HOLDS_S)
        waiting = list(done.victims)
        while mono_s(self._clock) < until_s:
            waiting = [one for one in waiting if self._may_go(one.namespace, one.name, one.pod_uid)]
            if not waiting:
                break
            await self.flush()
            victim = next((one for one in waiting if self._account.ready(one.namespace)), None)
            if victim is None:
                await self._ask(done, waiting)
                await asyncio.sleep(LOOK_S)
                continue
            waiting.remove(victim)
            await self._evict(api, done, victim)
        await self.flush()

    async def _ask(self, done: DeschedulingPass, waiting: list[Victim]) -> None:
        """Request credit per namespace once a second: an outcome refused for lack of credit is the request."""
        now_s = mono_s(self._clock)
        if now_s >= self._asked_s + ASK_S:
            self._asked_s = now_s
            first = {one.namespace: one for one in reversed(waiting)}
            refused = (self._outcome(done, one, "refused", NO_CREDIT) for one in first.values())
            await self._send([_out(one, OUTCOME.name) for one in refused])
            metrics.EVICTIONS.labels("no_credit").inc(len(first))

    async def _evict(self, api: ApiServer, done: DeschedulingPass, victim: Victim) -> None:
        self._account.reserve()
        result: Result = "failed"
        reason = "it is unknown whether the API server received it"
        try:
            await api.create(
                PODS,
                {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": victim.name, "namespace": victim.namespace},
                    "deleteOptions": {"preconditions": {"uid": victim.pod_uid}},
                },
                dict,
                namespace=victim.namespace,
                name=victim.name,
                sub="eviction",
            )
            result, reason = "applied", f"leaves {victim.node}, pass {done.epoch}/{done.number}"
        except ApiRefusedError as exc:
            # The causes name the PodDisruptionBudget.
            causes = (cause.message for cause in exc.causes if cause.message not in exc.message)
            result, reason = "refused", " ".join([str(exc.status), *filter(None, [exc.message, *causes])])
        except ApiError as exc:
            reason = str(exc)
        finally:
            self._account.settle(goes=result != "refused")
            if result != "refused":
                self._left(victim.node)
            outcome = self._outcome(done, victim, result, reason)
            self._unpublished.append(_out(outcome, OUTCOME.name))
            if audited(outcome):
                self._unpublished.append(_out(outcome, AUDIT.name))
            metrics.EVICTIONS.labels(result).inc()
        self.trouble = "" if result == "applied" else f"{victim.namespace}/{victim.name}: {reason}"
        where = {"pod": f"{victim.namespace}/{victim.name}", "node": victim.node}
        log.warning("eviction by load", extra=where | {"result": result, "why": reason})
        if result == "applied":
            pod = About(namespace=victim.namespace, name=victim.name, uid=victim.pod_uid)
            note = f"{observed(victim.terms)}; {reason}"
            try:
                await create_event(api, self._source, pod, FEATURE, note, now_ms=self._clock.wall_ms())
            except ApiError as exc:
                self.trouble = str(exc)

    async def flush(self) -> None:
        """Publish pending outcomes. Raises LogError if Kafka is unavailable."""
        if self._unpublished:
            await self._send(self._unpublished)
            self._unpublished = []

    def _outcome(self, done: DeschedulingPass, victim: Victim, result: Result, reason: str) -> NodeOutcome:
        now_ms = self._clock.wall_ms()
        return NodeOutcome(
            node=DESCHEDULER,
            boot_id=self._account.boot_id,
            seq=done.number,
            command_id=f"{done.epoch}/{done.number}/{victim.pod_uid}",
            rule=FEATURE,
            target=f"pod/{victim.pod_uid}",
            origin="stream",
            result=result,
            reason=reason,
            policy_version=done.policy_version,
            observed_ms=done.decided_ms,
            acted_ms=now_ms,
            age_ms=max(0, now_ms - done.decided_ms),
            terms=victim.terms,
            pod=PodName(namespace=victim.namespace, name=victim.name),
            spent=self._account.spent,
        )


def _out(outcome: NodeOutcome, topic: str) -> Out:
    event_id = f"{outcome.command_id}/{outcome.acted_ms}"
    return event(topic, DESCHEDULER, encode(outcome), source="bridge", event_id=event_id, event_ms=outcome.acted_ms)


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

    def _pod_source(self) -> PodSource[DeschedulerPod]:
        return PodSource(parsed, self._cluster, "this pod is never evicted", self._ignored)

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
            await asyncio.sleep(FLUSH_S)

    async def _each(self, api: ApiServer) -> None:
        interval_s = self._policy.descheduling.interval_s
        due_s = mono_s(self._clock) + interval_s
        while True:
            await asyncio.sleep(max(0.0, due_s - mono_s(self._clock)))
            due_s = mono_s(self._clock) + interval_s
            if self._pods.trouble:
                continue  # pod locations may be out of date
            cluster = self._cluster.copy()
            metrics_by_node = {node: self._metric_of(node) for node in cluster.nodes}
            now_s, now_ms = mono_s(self._clock), self._clock.wall_ms()
            # On a thread, since it takes tenths of a second.
            done = await asyncio.to_thread(self._passes.next, cluster, metrics_by_node.get, self._policy, now_s, now_ms)
            name = f"{done.epoch}/{done.number}"
            metrics.PASSES.labels(done.bound).inc()
            metrics.CHOSEN.labels("yes" if done.dry_run else "no").inc(done.terms["evicted_pods"])
            metrics.OVER.set(done.terms["over_nodes"])
            for victim in done.victims:
                log.info(
                    "a pod would be selected for eviction" if done.dry_run else "a pod is selected for eviction",
                    extra={"pod": f"{victim.namespace}/{victim.name}", "node": victim.node, "pass": name},
                )
            record = event(
                DESCHEDULING.name, name, encode(done), source=SOURCE, event_id=name, event_ms=done.decided_ms
            )
            try:
                await self._send([record])
                await self._evicting.flush()  # a policy change during an eviction may have left it unpublished
                if not done.dry_run:
                    await self._evicting.carry_out(api, done, due_s)
                self._trouble = ""
            except LogError as exc:
                self._trouble = str(exc)

    def _left(self, node: str) -> None:
        self._passes.left(node, mono_s(self._clock))

    async def _send(self, records: Collection[Out]) -> None:
        if not self._sender.connected:
            await self._sender.connect([DESCHEDULING.name, OUTCOME.name, AUDIT.name])
        await self._sender.send([self._sign(record) for record in records])
