"""Reads a node's records without a consumer group: answers, policy, eviction credit, inventory, slopes of services."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from slacktide.schemas.backoff import Reasons
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import COMMAND, CREDIT, INVENTORY, POLICY, SERVICE_SLOPE
from slacktide.streams.kafka.connecting import reason_of
from slacktide.streams.kafka.gathering import Due
from slacktide.streams.kafka.reader import Fetched, Reader, partition_of, partitions_of, record_of, stand
from slacktide.streams.kept import answers_in
from slacktide.streams.records import Record
from slacktide.streams.rendering import rendered_key

log = logging.getLogger(__name__)

SILENCE_MS = 1_000
REPUBLISHED = 4_000
"""Records before a partition's end: the inventory of its 20 to 100 nodes is republished every minute."""
PARTITION_BYTES_MAX = 1 << 20
"""Per partition and fetch, because an agent has little memory."""
SLOPES_LOOK_S = 180.0
"""How often it is checked whether slopes that could not be read can be read by now."""
SLOPES_ANSWER_S, SLOPES_FIRST_S = 1.0, 3.0
"""While commands are read, and before: a slower answer would delay them. Slopes are then left out."""
NOT_SEEN = "no such topic, or no right to see it"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecords:
    """The records of one read."""

    commands: list[Record]
    """Of this node."""
    policies: list[Record]
    """At first all that the topic holds, then new ones."""
    credits: list[Record]
    """Of this node."""
    credit_age_s: float
    """All arrived within this time."""
    inventories: list[Record]
    """Of this node: at first those of the last minutes, then new ones."""
    slopes: list[Record]
    """Of all services: at first all that the topic holds, then new ones. None while the topic cannot be read."""
    slopes_anew: bool
    """Whether the topic is read from its beginning, and these slopes are the first."""
    slopes_whole: bool
    """Whether all that the topic held has been read since."""


class NodeReader(Reader):
    """Reads commands and credit from their end, policy and slopes from their beginning, and inventory of minutes.

    While no answer is ``due`` it fetches once a second: its neighbours' answers would end each fetch, and cost more
    than all else that an agent does. Their batches are searched for the node's name, and not decoded without it.

    Reconnect after any error. A lease published before may have expired: the governor publishes it again.

    It goes on without slopes while their topic is missing, or may not be read. It looks again every three minutes.
    """

    def __init__(
        self, bootstrap: Cluster, node: str, *, client_id: str, fetch_wait_ms: int, due: Callable[[], bool]
    ) -> None:
        self.partition = -1
        """The partition of this node's answers; -1 before the first connection."""
        key = rendered_key(node.encode())
        super().__init__(
            bootstrap,
            fetch_wait_ms,
            client_id=client_id,
            lost="none",
            partition_bytes_max=PARTITION_BYTES_MAX,
            silences=2,  # within one of them it may not fetch
            naming=Due(
                {COMMAND.name: [key, msgspec.json.encode(node)], CREDIT.name: [key], INVENTORY.name: [key]},
                lambda: self._follows or due(),
            ),
        )
        self._follows = True
        """Whether there may be more of what others publish."""
        self._node = node
        self._key = node.encode()
        self._silence_ms = SILENCE_MS + 2 * fetch_wait_ms
        self._commands = TopicPartition(COMMAND.name, 0)
        self._policies = TopicPartition(POLICY.name, 0)
        self._credits = TopicPartition(CREDIT.name, 0)
        self._inventories = TopicPartition(INVENTORY.name, 0)
        self._slopes = TopicPartition(SERVICE_SLOPE.name, 0)
        self._slopes_there = self._slopes_anew = self._slopes_whole = False
        self._slopes_lack = Reasons()
        self._slopes_look_s = math.inf
        self._credits_polled_ms: int | None = None
        self._credits_whole_s = 0.0
        """When all available credit was certainly read."""
        self._read_s = 0.0
        self._policy_held: list[Record] | None = []

    async def read(self) -> NodeRecords:
        """Wait for records; return none after a second or two.

        Raises LogError if Kafka is unreachable, or a topic was re-created.
        """
        await self._look_at_slopes()
        got = await self._readable()
        policies = await self._policies_of([record_of(one) for one in got.get(self._policies, [])])
        if self._slopes_there and not self._slopes_whole and await self._at_end(self._slopes):
            self._slopes_whole = True
            self._slopes_lack.reset()
        read_whole = self._policy_held is None and self._slopes_whole is self._slopes_there
        self._follows = not read_whole or bool(got.keys() - {self._commands})
        slopes_anew, self._slopes_anew = self._slopes_anew, False
        return NodeRecords(
            commands=[answer for one in got.get(self._commands, []) for answer in self._answers(one)],
            policies=policies,
            credits=self._mine(got.get(self._credits, [])),
            credit_age_s=self._credit_age_s(),
            inventories=self._mine(got.get(self._inventories, [])),
            slopes=[record_of(one) for one in got.get(self._slopes, [])],
            slopes_anew=slopes_anew,
            slopes_whole=self._slopes_whole,
        )

    def wake(self) -> None:
        """An answer may be due now."""
        if self._open is not None:
            self._open._fetcher.wake()  # noqa: SLF001 - it has no public method

    async def _begin(self, consumer: Any) -> None:
        self._follows = True
        for topic in (POLICY, CREDIT, INVENTORY):
            await partitions_of(consumer, topic.name)
        self.partition = partition_of(self._node, len(await partitions_of(consumer, COMMAND.name)))
        self._commands = TopicPartition(COMMAND.name, self.partition)
        self._inventories = TopicPartition(INVENTORY.name, self.partition)
        tps = [self._commands, self._policies, self._credits, self._inventories]
        asked_s = asyncio.get_running_loop().time()
        begin, end = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        inventories = self._inventories
        recent = max(begin[inventories], end[inventories] - REPUBLISHED)
        others = end | {self._policies: begin[self._policies], inventories: recent}
        stand(consumer, others | await self._slopes_from(consumer, SLOPES_FIRST_S))
        self._policy_held = []
        self._credits_polled_ms = None
        self._credits_whole_s = self._read_s = asked_s

    async def _slopes_from(self, consumer: Any, within_s: float) -> dict[TopicPartition, int]:
        """Return where slopes begin; empty if they cannot be read, which is logged."""
        found: dict[TopicPartition, int] = {}
        why = NOT_SEEN
        try:
            async with asyncio.timeout(within_s):
                if SERVICE_SLOPE.name in await consumer.topics():
                    found = await consumer.beginning_offsets([self._slopes])
        except (KafkaError, OSError, TimeoutError) as exc:  # a lost connection shows when it fetches
            why = reason_of(exc)
        if not found:
            self._lacks_slopes(why)
        self._slopes_there = self._slopes_anew = bool(found)
        self._slopes_whole = False
        return found

    async def _look_at_slopes(self) -> None:
        """Begin with slopes once they can be read. End if their topic was deleted: the client would ask for it."""
        if self._slopes_whole and self._consumer.partitions_for_topic(SERVICE_SLOPE.name) is None:
            await self._leave_slopes(NOT_SEEN)
        if self._slopes_there or asyncio.get_running_loop().time() < self._slopes_look_s:
            return
        if found := await self._slopes_from(self._consumer, SLOPES_ANSWER_S):
            await self._stand_anew(found)

    async def _readable(self) -> Fetched:
        """Poll all partitions. From then on without slopes if they must not be read."""
        try:
            return await self._fetched(self._silence_ms)
        except LogError as exc:
            cause = exc.__cause__
            if not isinstance(cause, TopicAuthorizationFailedError) or SERVICE_SLOPE.name not in cause.args:
                raise
        await self._leave_slopes("no right to read it")
        return {}

    async def _leave_slopes(self, why: str) -> None:
        self._lacks_slopes(why)
        self._slopes_there = self._slopes_anew = self._slopes_whole = False
        await self._stand_anew({})

    async def _stand_anew(self, slopes: dict[TopicPartition, int]) -> None:
        """Continue all other partitions where they are, with or without slopes."""
        consumer = self._consumer
        others = consumer.assignment() - {self._slopes}
        stand(consumer, {one: await consumer.position(one) for one in others} | slopes)
        self._follows = True
        self._credits_polled_ms = None  # the client forgets its polls
        self._fetched_ms, self._silent = (), 0

    def _lacks_slopes(self, why: str) -> None:
        self._slopes_look_s = asyncio.get_running_loop().time() + SLOPES_LOOK_S
        if self._slopes_lack.is_new(why):
            advice = "slacktide topics apply creates it, slacktide topics acl lists the rights"
            log.warning(
                "slopes of services cannot be read; those known stay in force",
                extra={"topic": SERVICE_SLOPE.name, "why": f"{why}; {advice}"},
            )

    def _mine(self, read: list[Any]) -> list[Record]:
        """Return this node's records and unreadable batches; others are dropped undecoded."""
        return [record_of(one) for one in read if one.key == self._key or isinstance(one.value, UnreadableBatch)]

    def _answers(self, read: Any) -> list[Record]:
        record = record_of(read)
        return [record] if isinstance(record.value, UnreadableBatch) else answers_in(record, self._key)

    def _credit_age_s(self) -> float:
        """Return the maximum age of the records just read; call it once per read."""
        now_s = asyncio.get_running_loop().time()
        age_s = now_s - self._credits_whole_s
        polled_ms = self._consumer.last_poll_timestamp(self._credits)
        if polled_ms != self._credits_polled_ms:  # the broker has sent all records since the last read
            self._credits_polled_ms, self._credits_whole_s = polled_ms, self._read_s
        self._read_s = now_s
        return age_s

    async def _policies_of(self, records: list[Record]) -> list[Record]:
        """Hold policies back until the topic is read completely, so that no outdated policy applies."""
        if self._policy_held is None:
            return records
        self._policy_held += records
        if not await self._at_end(self._policies):
            return []
        whole, self._policy_held = self._policy_held, None
        return whole
