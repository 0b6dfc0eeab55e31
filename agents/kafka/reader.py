"""What a node hears: answers in its partition, the one policy, its eviction credit; without a consumer group."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from slacktide.agents.kafka.closing import stop
from slacktide.agents.kafka.records import Record, partition_of, record_of
from slacktide.agents.kafka.standing import Silence, opened
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import COMMAND, CREDIT, INVENTORY, POLICY

SILENCE_MS = 1_000
TOLD_AGAIN = 4_000
"""Records before a partition's end: its nodes, 20 to 100 of them, are each told of every minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came at once."""

    commands: list[Record]
    """Of this node."""
    policies: list[Record]
    """The first time all that the topic holds, then what comes."""
    credits: list[Record]
    """Of this node."""
    credit_age_s: float
    """None of them came longer ago than this."""
    inventories: list[Record]
    """Of this node: the first time those of the last minutes, then what comes."""
    foreign: int
    """Other nodes' answers, dropped unread."""


class NodeReader:
    """Reads commands and credit from their end, policy from its beginning, inventory from a while before its end.

    After any failure connect anew.

    A lease that was said before may be over by now: the governor says it again.
    """

    def __init__(self, bootstrap: str, node: str, *, client_id: str, fetch_wait_ms: int) -> None:
        self.partition = -1
        """Where this node's answers lie; -1 before the first connection."""
        self._bootstrap = bootstrap
        self._node = node
        self._key = node.encode()
        self._client_id = client_id
        self._fetch_wait_ms = fetch_wait_ms
        self._silence_ms = SILENCE_MS + 2 * fetch_wait_ms
        self._consumer: Any = None
        self._commands = TopicPartition(COMMAND.name, 0)
        self._policies = TopicPartition(POLICY.name, 0)
        self._credits = TopicPartition(CREDIT.name, 0)
        self._inventories = TopicPartition(INVENTORY.name, 0)
        self._credits_polled_ms: int | None = None
        self._credits_whole_s = 0.0
        """When all credit that had come was certainly read."""
        self._read_s = 0.0
        self._policy_held: list[Record] | None = []
        self._silence = Silence(bootstrap, (), self._silence_ms)

    async def connect(self) -> None:
        """Connect, and stand at the end of the commands and at the beginning of the policy.

        Raises:
            LogError: the broker cannot be reached, or lacks a topic.

        """
        await self.close()
        self._consumer = await opened(
            self._bootstrap, client_id=self._client_id, fetch_wait_ms=self._fetch_wait_ms, assign=self._assign
        )

    async def read(self) -> Heard:
        """Wait for what comes next; empty after a second or two of silence.

        Raises:
            LogError: the broker is away, or its log is not the one that was being read.

        """
        try:
            got = await self._consumer.getmany(timeout_ms=self._silence_ms)
            if not got:
                await self._silence.check(self._consumer)
            policies = await self._policies_of([record_of(one) for one in got.get(self._policies, [])])
        except KafkaError as exc:
            raise LogError(f"{self._bootstrap}: {exc!r}") from exc
        commands = got.get(self._commands, [])
        mine = self._mine(commands)
        return Heard(
            commands=mine,
            policies=policies,
            credits=self._mine(got.get(self._credits, [])),
            credit_age_s=self._credit_age_s(),
            inventories=self._mine(got.get(self._inventories, [])),
            foreign=len(commands) - len(mine),
        )

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop(consumer)

    async def _assign(self, consumer: Any) -> None:
        there = await consumer.topics()
        needed = (COMMAND.name, POLICY.name, CREDIT.name, INVENTORY.name)
        missing = [name for name in needed if name not in there]
        if missing:
            raise LogError(f"{self._bootstrap}: no topic {missing[0]}: slacktide topics apply")
        count = len(await consumer._client._wait_on_metadata(COMMAND.name))  # noqa: SLF001 - as subscribe() does
        self.partition = partition_of(self._node, count)
        self._commands = TopicPartition(COMMAND.name, self.partition)
        self._inventories = TopicPartition(INVENTORY.name, self.partition)
        tps = [self._commands, self._policies, self._credits, self._inventories]
        asked_s = asyncio.get_running_loop().time()
        begin, end = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek(self._commands, end[self._commands])
        consumer.seek(self._credits, end[self._credits])
        consumer.seek(self._policies, begin[self._policies])
        inventories = self._inventories
        consumer.seek(inventories, max(begin[inventories], end[inventories] - TOLD_AGAIN))
        self._policy_held, self._silence = [], Silence(self._bootstrap, tps, self._silence_ms)
        self._credits_polled_ms = None
        self._credits_whole_s = self._read_s = asked_s

    def _mine(self, read: list[Any]) -> list[Record]:
        """What is keyed by this node; others are dropped undecoded."""
        return [record_of(one) for one in read if one.key == self._key]

    def _credit_age_s(self) -> float:
        """How long ago what was just read can have come at most; called once for each read."""
        now_s = asyncio.get_running_loop().time()
        age_s = now_s - self._credits_whole_s
        polled_ms = self._consumer.last_poll_timestamp(self._credits)
        if polled_ms != self._credits_polled_ms:  # since the last read the broker has told what there is
            self._credits_polled_ms, self._credits_whole_s = polled_ms, self._read_s
        self._read_s = now_s
        return age_s

    async def _policies_of(self, records: list[Record]) -> list[Record]:
        """Held back until the topic was read whole: no policy of yesterday may act on the way."""
        if self._policy_held is None:
            return records
        self._policy_held += records
        end = self._consumer.highwater(self._policies)
        if end is None or await self._consumer.position(self._policies) < end:
            return []
        whole, self._policy_held = self._policy_held, None
        return whole
