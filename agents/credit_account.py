"""Eviction credit, which the governor grants: of a node's boot, of the descheduler, and of the job queue.

The bridge and the queue's decider have the cluster keys, with which they sign their outcomes as a node does.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from slacktide.agents.clock import Clock
from slacktide.schemas.bounds import COUNT_MAX
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.credit import NO_CREDIT, QUEUE, EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.outcome import NodeOutcome, PodName, Result, Spent
from slacktide.schemas.proof import NODE_KEY_LIFE_S, ClusterKey, node_key
from slacktide.schemas.topics import CREDIT, OUTCOME
from slacktide.streams.kafka import Sender, Tail
from slacktide.streams.records import Out, event

LAST = (COUNT_MAX, COUNT_MAX)
"""The highest possible position. After it the order of arrival decides."""


class CreditAccount:
    """The current lease and the credit spent. Call ``ready`` for each pod, then ``spend``."""

    def __init__(self, boot_id: str) -> None:
        self.spent = 0
        """Evictions since the agent's start."""
        self.epoch = 0
        """The highest governor epoch received."""
        self._boot_id = boot_id
        self._reserved = 0
        self._newest = (0, -1)
        self._granted = 0
        self._spared: frozenset[str] = frozenset()
        self._until_ns = 0
        self._away_since_ns: int | None = None
        self._outlasted = False

    def receive(self, credit: EvictionCredit, since_ns: int) -> None:
        """Use a lease of this node, for any of its boots, if it is newer than all before it.

        The lease counts from ``since_ns``, the last monotonic time before its arrival, so a delayed one ends in time.
        """
        if (credit.epoch, credit.number) <= self._newest != LAST:
            return
        self._newest = (credit.epoch, credit.number)
        self.epoch = credit.epoch
        if credit.boot_id == self._boot_id:
            # A bad record may count more evictions than there were; they give no credit.
            self._granted = min(credit.granted, self.spent + credit.granted - credit.spent)
            self._spared = frozenset(credit.spared_namespaces)
            self._until_ns = since_ns + credit.ttl_ms * 1_000_000
            self._outlasted = False

    def log_is(self, *, away: bool, now_ns: int) -> None:
        """Record whether Kafka is reachable. A lease that cannot be renewed may be used past its end."""
        if not away:
            self._away_since_ns = None
        elif self._away_since_ns is None:
            self._away_since_ns = now_ns

    def ready(self, now_ns: int, namespace: str) -> bool:
        """Return whether one more pod of the namespace may be evicted now."""
        if self.spent + self._reserved >= self._granted or namespace in self._spared:
            return False
        # A lease that was valid when Kafka became unreachable allows one eviction meanwhile.
        away_ns = self._away_since_ns
        return now_ns < self._until_ns or (away_ns is not None and away_ns < self._until_ns and not self._outlasted)

    def spend(self, now_ns: int) -> None:
        """Spend credit for a pod, before it is signalled."""
        self.spent += 1
        self._outlasted = self._outlasted or now_ns >= self._until_ns

    def reserve(self, now_ns: int) -> None:
        """Reserve credit for a request to the API server. It is not reported as spent yet."""
        self._reserved += 1
        self._outlasted = self._outlasted or now_ns >= self._until_ns

    def settle(self, *, goes: bool) -> None:
        """Spend or release reserved credit. ``goes``: the pod was evicted, or may have been."""
        self._reserved -= 1
        self.spent += goes


def signed(out: Out, ring: Sequence[ClusterKey], now_ms: int) -> Out:
    """Return an own outcome with a proof, as a node's has one. Without a cluster key, return it unchanged.

    The key of ``out`` is its writer's name at the governor. The proof derives from the first key of ``ring``.
    """
    if not ring or out.topic != OUTCOME.name or out.key is None or out.value is None:
        return out
    key = node_key(ring[0], out.key.decode(), now_ms // 1_000 + NODE_KEY_LIFE_S)
    return msgspec.structs.replace(out, headers=(*out.headers, key.header(out.topic, out.value)))


RULE = "QueueQuota"
ASK_NS = 1_000_000_000


class Victim(Protocol):
    """A workload that exceeds a quota."""

    @property
    def uid(self) -> str:
        """Uid of the workload."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Of the workload."""


class QueueCredit:
    """Credit for one term of the decider. Later terms have higher epochs.

    The first of the cluster keys signs the outcomes. Without keys, outcomes have no proof.
    """

    def __init__(
        self, reading: Tail, epoch: int, sending: Sender, clock: Clock, keys: Sequence[ClusterKey] = ()
    ) -> None:
        self._boot_id = f"{epoch:012}-queue"
        self._account = CreditAccount(self._boot_id)
        self._reading, self._sending, self._clock = reading, sending, clock
        self._keys = keys
        self._read_ns = self._asked_ns = 0
        self._seq = 0

    async def ready(self, victims: Iterable[Victim]) -> list[str]:
        """Return uids that may be evicted now, at most one. Without credit, request it.

        Raises:
            LogError: credit cannot be read or requested.
        """
        victims = list(victims)
        if not victims:
            return []
        began_ns = self._clock.mono_ns()
        if not self._read_ns:
            await self._reading.read({(CREDIT.name, 0): None})
            self._read_ns = began_ns
        for record in await self._reading.more():
            if record.key == QUEUE.encode() and record.value is not None:
                with suppress(BadMessageError):
                    self._account.receive(decode(record.value, EvictionCredit), self._read_ns)
        self._read_ns = began_ns
        now_ns = self._clock.mono_ns()
        able = next((one for one in victims if self._account.ready(now_ns, one.namespace)), None)
        if able is not None:
            return [able.uid]
        if now_ns - self._asked_ns >= ASK_NS:
            self._asked_ns = now_ns
            first = {one.namespace: one for one in reversed(victims)}
            await self._send(first.values(), "refused", NO_CREDIT)
        return []

    async def spend(self, victims: Iterable[Victim]) -> None:
        """Publish that credit is spent, before the decision, so that no eviction escapes the budget.

        Raises:
            LogError: it cannot be published.
        """
        for one in victims:
            self._account.spend(self._clock.mono_ns())
            await self._send([one], "applied", "it exceeds its quota, which was reduced")

    async def _send(self, victims: Iterable[Victim], result: Result, reason: str) -> None:
        await self._sending.send_each([self._out(one, result, reason) for one in victims])

    def _out(self, one: Victim, result: Result, reason: str) -> Out:
        now_ms = self._clock.wall_ms()
        self._seq += 1
        outcome = NodeOutcome(
            node=QUEUE,
            boot_id=self._boot_id,
            seq=self._seq,
            command_id=f"{self._boot_id}/{one.uid}",
            rule=RULE,
            target=f"workload/{one.uid}",
            origin="stream",
            result=result,
            reason=reason,
            policy_version="",
            observed_ms=now_ms,
            acted_ms=now_ms,
            age_ms=0,
            pod=PodName(namespace=one.namespace, name=one.name),
            spent=Spent(evictions=self._account.spent, epoch=self._account.epoch),
        )
        event_id = f"{self._boot_id}/{self._seq}"
        out = event(OUTCOME.name, QUEUE, encode(outcome), source="queue", event_id=event_id, event_ms=now_ms)
        return signed(out, self._keys, now_ms)
