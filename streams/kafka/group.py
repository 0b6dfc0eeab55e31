"""A member of the group that shares partitions of topics out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.closing import close
from slacktide.streams.kafka.common import FETCH_BYTES_MAX, METADATA_MS, POLL_S, record_of, trouble
from slacktide.streams.kafka.connecting import client
from slacktide.streams.kafka.fetched import at_once
from slacktide.streams.kafka.pace import Pace
from slacktide.streams.records import Place, Record

log = logging.getLogger(__name__)

COMMIT_S = 2.0
"""Within this a member notices that its topic is gone, there again or has more partitions: the client's own 5 min would
leave samples unanswered for as long."""
POLL_RECORDS_MAX = 250
"""Per turn: while they are answered nothing else of the process runs."""

WHOLE_BYTES_MAX = 512 << 10
"""Of each partition at once, where whole fetches are taken. A broker returns a batch that is larger only for the first
partition of a fetch."""

Fetched = tuple[dict[Place, list[Record]], dict[Place, int | None]]
"""By place: the records in order, and the offset at which it ends, where that is known."""
Assigned = Callable[[frozenset[Place]], Awaitable[None]]

ASSIGNORS = [RangePartitionAssignor]
"""It gives a member the same partitions of all topics: they hold the same nodes. One only: aiokafka sends a request to
join for each assignor, and each begins a rebalance. Two members whose requests alternate never get partitions."""


class Group(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """One member of the group that shares partitions of topics out."""

    _deserializer: Callable[[bytes], Any] | None = None
    _partition_bytes_max = FETCH_BYTES_MAX

    def __init__(
        self,
        bootstrap: Cluster,
        topics: Sequence[str],
        group: str,
        *,
        session_timeout_ms: int,
        fetch_wait_ms: int,
        assigned: Assigned,
        revoked: Assigned,
        sticky: bool = False,
    ) -> None:
        """Make a member that has not joined yet.

        Args:
            bootstrap: the Kafka cluster.
            topics: whose partitions are shared out.
            group: its name.
            session_timeout_ms: a member silent for this long is out.
            fetch_wait_ms: how long the broker may hold a fetch.
            assigned: is called with the places that the member has now.
            revoked: is called when they are being shared out anew.
            sticky: who has a partition keeps it when others join; all members must have the same setting.

        """
        self._topics = topics
        self._what = " and ".join(topics)
        self._assigned = assigned
        self._revoked = revoked
        self._pace = Pace(fetch_wait_ms)
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **client(bootstrap),
            group_id=group,
            partition_assignment_strategy=[_sticky()] if sticky else ASSIGNORS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=METADATA_MS,
            fetch_max_wait_ms=fetch_wait_ms,
            max_partition_fetch_bytes=self._partition_bytes_max,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 6,
            value_deserializer=self._deserializer,
        )

    async def join(self) -> None:
        """Join, and return with the first assignment.

        Raises:
            LogError: nobody answers.

        """
        with trouble(f"cannot read {self._what}"):
            self._consumer.subscribe(list(self._topics), listener=self)
            await self._consumer.start()

    async def leave(self) -> None:
        """Leave at once, so that others need not wait for the session to end."""
        leave_first_generation(self._consumer)
        await close(self._consumer)

    @property
    def generation(self) -> int:
        """Of the group, in which this member was given its partitions: each new sharing out has a higher one."""
        coordinator = self._consumer._coordinator  # noqa: SLF001 - it has no other face
        return -1 if coordinator is None else int(coordinator.generation)

    async def fetch(self) -> Fetched:
        """Wait a moment for records, or for the end of a rebalance.

        Raises:
            LogError: it cannot be read.

        """
        fetched, ends = await self._fetch(POLL_RECORDS_MAX)
        self._pace.polled(self._consumer, found=bool(fetched))
        return {place: [record_of(read) for read in batch] for place, batch in fetched.items()}, ends

    async def _fetch(self, most: int | None) -> tuple[dict[Place, Sequence[Any]], dict[Place, int | None]]:
        with trouble(f"cannot read {self._what}"):
            fetched = await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000), max_records=most)
        ends = {Place(*place): self._consumer.highwater(place) for place in fetched}
        return {Place(*place): batch for place, batch in fetched.items()}, ends

    async def commit(self, offsets: Mapping[Place, int] | Mapping[Place, tuple[int, str]]) -> bool:
        """Commit how far all is done, with a note where there is one.

        Returns:
            False: not now. Nothing is lost but time, for it is done again.

        """
        places: dict[TopicPartition, Any] = {TopicPartition(*place): offset for place, offset in offsets.items()}
        return await committed(self._consumer, places)

    async def commit_marked(self, offsets: Mapping[Place, tuple[int, str]]) -> bool:
        """Commit offsets with their notes; False: not now."""
        return await self.commit(offsets)

    async def notes(self, places: Collection[Place]) -> dict[Place, tuple[int, str]]:
        """What is committed of these places, and the notes with it; nothing where the broker does not answer."""
        found = await notes(self._consumer, [TopicPartition(*place) for place in places])
        return {Place(*place): one for place, one in found.items()}

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the client."""
        await self._assigned(frozenset(Place(*place) for place in assigned))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called by the client."""
        await self._revoked(frozenset(Place(*place) for place in revoked))


class WholeGroup(Group):
    """A member that takes all that was fetched of each partition at once, for ``streams.columns.batches``."""

    _deserializer = staticmethod(at_once)
    _partition_bytes_max = WHOLE_BYTES_MAX

    async def fetch_whole(self) -> tuple[dict[Place, Sequence[Any]], dict[Place, int | None]]:
        """As ``fetch``, but whole fetches for records.

        Raises:
            LogError: it cannot be read.

        """
        return await self._fetch(None)


def _sticky() -> type[StickyPartitionAssignor]:
    """A class for each membership: the client keeps what a member had on it, also when another begins."""

    class Sticky(StickyPartitionAssignor):  # type: ignore[misc]  # the client has no types
        member_assignment = None
        generation = StickyPartitionAssignor.DEFAULT_GENERATION_ID

    return Sticky


async def notes(
    consumer: AIOKafkaConsumer[bytes, bytes], places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """Committed offsets with their notes, which the client's own ``committed`` leaves out."""
    coordinator = consumer._coordinator  # noqa: SLF001 - it has no other face
    if coordinator is None:
        return {}
    try:
        async with asyncio.timeout(COMMIT_S):
            found = await coordinator.fetch_committed_offsets(list(places))
    except (KafkaError, TimeoutError) as exc:
        log.warning("cannot read what is committed: %s", str(exc) or type(exc).__name__)
        return {}
    return {place: (one.offset, one.metadata or "") for place, one in found.items()}


async def committed(
    consumer: AIOKafkaConsumer[bytes, bytes],
    offsets: Mapping[TopicPartition, int] | Mapping[TopicPartition, tuple[int, str]],
) -> bool:
    """Commit offsets of partitions that are still this consumer's, with their notes; False: not now."""
    coordinator = consumer._coordinator  # noqa: SLF001 - it has no other face
    if coordinator is None or coordinator.generation < 0:
        # Expelled, the client would commit as if without a group: a log made anew takes that, and skips its beginning.
        return False
    held = consumer.assignment()
    mine: dict[TopicPartition, Any] = {place: offset for place, offset in offsets.items() if place in held}
    if not mine:
        return False
    try:
        async with asyncio.timeout(COMMIT_S):
            await consumer.commit(mine)
    except (CommitFailedError, IllegalStateError) as exc:
        log.info("not committed, the consumer group is rebalancing: %s", exc)
    except (KafkaError, TimeoutError) as exc:
        log.warning("not committed: %s", str(exc) or type(exc).__name__)
    else:
        return True
    return False


def leave_first_generation(consumer: AIOKafkaConsumer[bytes, bytes]) -> None:
    """Make the client leave also in a group's generation 0, where the embedded broker begins to count.

    The client takes 0 for "not joined" and goes silently; the next member would then wait out a dead one.
    """
    coordinator = consumer._coordinator  # noqa: SLF001 - it has no other face
    if coordinator is not None and coordinator.generation == 0:
        coordinator.generation = 1
