"""Eviction credit of the job queue, which the governor grants as to a node, for evictions after its quotas shrank.

One credit is one workload, whose Job then ends its pods. The governor grants only requested credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from slacktide.agents.clock import Clock
from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.signing import signed
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.credit import NO_CREDIT, QUEUE, EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.outcome import NodeOutcome, PodName, Result, Spent
from slacktide.schemas.proof import ClusterKey
from slacktide.schemas.topics import CREDIT, OUTCOME
from slacktide.streams.records import Out, Record, event

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


class Reading(Protocol):
    """Reads Kafka; ``Tail`` implements it."""

    async def read(self, since_ms: Mapping[tuple[str, int], int | None]) -> object:
        """Read partitions from a time on; None: only new records."""

    async def more(self) -> list[Record]:
        """Read new records."""


class Sending(Protocol):
    """Publishes to Kafka."""

    async def send_each(self, records: list[Out]) -> object:
        """Publish, and wait for acknowledgements."""


class QueueCredit:
    """Credit for one term of the decider. Later terms have higher epochs.

    The first of the cluster keys signs the outcomes. Without keys, outcomes have no proof.
    """

    def __init__(
        self, reading: Reading, epoch: int, sending: Sending, clock: Clock, keys: Sequence[ClusterKey] = ()
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
        await self._read()
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

    async def _read(self) -> None:
        began_ns = self._clock.mono_ns()
        if not self._read_ns:
            await self._reading.read({(CREDIT.name, 0): None})
            self._read_ns = began_ns
        for record in await self._reading.more():
            if record.key == QUEUE.encode() and record.value is not None:
                try:
                    self._account.receive(decode(record.value, EvictionCredit), self._read_ns)
                except BadMessageError:
                    continue
        self._read_ns = began_ns

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
