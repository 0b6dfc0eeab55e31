"""A member of a consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.connecting import METADATA_MS, client, close_consumer
from slacktide.streams.kafka.reader import FETCH_BYTES_MAX, POLL_S, Pace, record_of, trouble
from slacktide.streams.records import Place, Record

log = logging.getLogger(__name__)

COMMIT_S = 2.0
"""A member notices missing, new or larger topics within this time; the client's 5 min would be too long."""
POLL_RECORDS_MAX = 250
"""Per turn: nothing else of the process runs meanwhile."""

Fetched = tuple[dict[Place, list[Record]], dict[Place, int | None]]
"""By place: the records in order, and its end offset, if known."""
Assigned = Callable[[frozenset[Place]], Awaitable[None]]

ASSIGNORS = [RangePartitionAssignor]
"""Gives a member the same partitions of all topics: they hold the same nodes.

Only one: aiokafka requests to join for each, and members that alternate never get partitions.
"""


class Group(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """One member of a consumer group."""

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
        """Create a member that has not joined yet.

        It is removed after ``session_timeout_ms`` without a heartbeat. The broker may hold a fetch for
        ``fetch_wait_ms``. ``assigned`` is called with the current places, ``revoked`` when a rebalance begins.
        ``sticky`` members keep their partitions when others join; all must have the same setting.
        """
        self._topics = topics
        self._what = " and ".join(topics)
        self._assigned, self._revoked = assigned, revoked
        self._pace = Pace(fetch_wait_ms)
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **client(bootstrap),
            group_id=group,
            partition_assignment_strategy=[_sticky()] if sticky else ASSIGNORS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=METADATA_MS,
            fetch_max_wait_ms=fetch_wait_ms,
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 3,
        )

    async def join(self) -> None:
        """Join, and return with the first assignment. Raises LogError if there is no answer."""
        with trouble(f"cannot read {self._what}"):
            self._consumer.subscribe(list(self._topics), listener=self)
            await self._consumer.start()

    async def leave(self) -> None:
        """Leave immediately, so that others need not wait for the session timeout."""
        await leave(self._consumer)

    async def fetch(self, wait_s: float = POLL_S) -> Fetched:
        """Wait for records, ``wait_s`` at most, or for the end of a rebalance.

        Raises LogError if the topics cannot be read.
        """
        with trouble(f"cannot read {self._what}"):
            fetched = await self._consumer.getmany(timeout_ms=int(wait_s * 1_000), max_records=POLL_RECORDS_MAX)
        self._pace.polled(self._consumer, found=bool(fetched), wait_s=wait_s)
        ends = {Place(*place): self._consumer.highwater(place) for place in fetched}
        return {Place(*place): [record_of(read) for read in batch] for place, batch in fetched.items()}, ends

    async def commit(self, offsets: Mapping[Place, int] | Mapping[Place, tuple[int, str]]) -> bool:
        """Commit offsets, with their notes if any; return False if not possible now: the work is then repeated."""
        places: dict[TopicPartition, Any] = {TopicPartition(*place): offset for place, offset in offsets.items()}
        return await committed(self._consumer, places)

    async def notes(self, places: Collection[Place]) -> dict[Place, tuple[int, str]]:
        """Return the committed offsets and notes of these places; empty if the broker does not answer."""
        found = await notes(self._consumer, [TopicPartition(*place) for place in places])
        return {Place(*place): one for place, one in found.items()}

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Handle the client's callback."""
        await self._assigned(frozenset(Place(*place) for place in assigned))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Handle the client's callback."""
        await self._revoked(frozenset(Place(*place) for place in revoked))


def _sticky() -> Any:
    """Return a new class for each membership: the client keeps a member's state on the class."""
    # Late: an agent has this module, too, and no group.
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # noqa: PLC0415

    class Sticky(StickyPartitionAssignor):  # type: ignore[misc]  # the client has no types
        member_assignment = None
        generation = StickyPartitionAssignor.DEFAULT_GENERATION_ID

    return Sticky


async def notes(
    consumer: AIOKafkaConsumer[bytes, bytes], places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """Return committed offsets with their notes, which the client's ``committed`` omits."""
    coordinator = consumer._coordinator  # noqa: SLF001 - it has no public method
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
    """Commit offsets of partitions still assigned to this consumer, with their notes; False: not now."""
    coordinator = consumer._coordinator  # noqa: SLF001 - it has no public method
    if coordinator is None or coordinator.generation < 0:
        # An expelled client would commit as without a group: a re-created topic accepts that, and skips its beginning.
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


async def leave(consumer: AIOKafkaConsumer[bytes, bytes]) -> None:
    """Close a member, and leave also in a group's generation 0, where the embedded broker begins to count.

    The client takes 0 for "not joined" and leaves silently; the next member would then wait for a session timeout.
    """
    coordinator = consumer._coordinator  # noqa: SLF001 - it has no public method
    if coordinator is not None and coordinator.generation == 0:
        coordinator.generation = 1
    await close_consumer(consumer)
