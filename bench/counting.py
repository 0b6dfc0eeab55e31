"""Counts what a topic got: its records, and of those that answer many samples at once each answer."""

from typing import Any, ClassVar, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from slacktide.schemas.codec import decode
from slacktide.schemas.command import KEEP_KEY, NodesKept
from slacktide.schemas.topics import COMMAND, NODE_PARTITIONS

FETCH_BYTES = 8 << 20
_KEY = KEEP_KEY.encode()


class Counting:
    """Follows a topic of a broker from its beginning, or from where an earlier one of this process stood."""

    _stood: ClassVar[dict[tuple[str, str], tuple[int, dict[TopicPartition, int]]]] = {}

    @classmethod
    def begin_anew(cls) -> None:
        """Topics are empty again."""
        cls._stood.clear()

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count, self._positions = self._stood.get((bootstrap, topic), (0, {}))
        self._bootstrap, self._topic = bootstrap, topic
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=FETCH_BYTES)

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        places = [TopicPartition(self._topic, partition) for partition in range(NODE_PARTITIONS)]
        self._consumer.assign(places)
        await self._consumer.seek_to_beginning(*places)
        for place, position in self._positions.items():
            self._consumer.seek(place, position)
        return self

    async def __aexit__(self, *_: object) -> None:
        positions = {place: await self._consumer.position(place) for place in self._consumer.assignment()}
        self._stood[self._bootstrap, self._topic] = self.count, positions
        await self._consumer.stop()

    async def now(self, wait_ms: int = 50) -> int:
        """How many there are; wait so long for the next ones at least."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        self._count(await self._consumer.getmany(timeout_ms=wait_ms))
        while any([await self._consumer.position(place) < end for place, end in ends.items()]):
            self._count(await self._consumer.getmany(timeout_ms=wait_ms))
        return self.count

    def _count(self, got: dict[TopicPartition, list[Any]]) -> None:
        for records in got.values():
            for record in records:
                self.count += answers_in(record) if self._topic == COMMAND.name else 1


def answers_in(record: Any) -> int:
    """How many samples a record of the commands answers."""
    return len(decode(record.value, NodesKept).kept) if record.key == _KEY else 1
