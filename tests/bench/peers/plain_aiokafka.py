"""The peer without a framework: aiokafka's fetches, msgspec, a deque per node.

``python -m bench.peers.plain_aiokafka BROKER OUT``
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import deque
from typing import Any

import msgspec
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.peers.answer import WINDOW_S, answer
from slacktide.schemas.topics import SAMPLE

RECORDS_MAX = 4_000
COMMIT_EVERY_S = 1.0


class PodUse(msgspec.Struct, gc=False):
    uid: str
    cpu_milli: int
    mem_bytes: int
    best_effort_group: bool = False


class NodeUse(msgspec.Struct, gc=False):
    cpu_milli: int
    mem_bytes: int


class Sample(msgspec.Struct, gc=False):
    node: str
    observed_ms: int
    use: NodeUse
    pod_use: list[PodUse]


class PodSum:
    """Of one pod over the window."""

    __slots__ = ("count", "cpu_milli", "mem_bytes")

    def __init__(self) -> None:
        self.count = self.cpu_milli = self.mem_bytes = 0


class Window:
    """The last minute of one node: its samples, and its pods' sums."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._pods: dict[str, PodSum] = {}

    def answer(self, sample: Sample) -> dict[str, Any]:
        """Take one sample in, and answer it."""
        self._drop_before(sample.observed_ms - WINDOW_S * 1000)
        self._samples.append(sample)
        system_milli, system_bytes = sample.use.cpu_milli, sample.use.mem_bytes
        pods = []
        for use in sample.pod_use:
            pod = self._pods.get(use.uid)
            if pod is None:
                pod = self._pods[use.uid] = PodSum()
            pod.count += 1
            pod.cpu_milli += use.cpu_milli
            pod.mem_bytes += use.mem_bytes
            system_milli -= use.cpu_milli
            system_bytes -= use.mem_bytes
            pods.append((use.uid, pod.cpu_milli / pod.count, pod.mem_bytes / pod.count, use.best_effort_group))
        return answer(
            sample.node,
            sample.observed_ms,
            [one.use.cpu_milli for one in self._samples],
            [one.use.mem_bytes for one in self._samples],
            pods,
            (system_milli, system_bytes),
        )

    def _drop_before(self, observed_ms: int) -> None:
        while self._samples and self._samples[0].observed_ms <= observed_ms:
            for use in self._samples.popleft().pod_use:
                pod = self._pods[use.uid]
                pod.count -= 1
                pod.cpu_milli -= use.cpu_milli
                pod.mem_bytes -= use.mem_bytes
                if not pod.count:
                    del self._pods[use.uid]


async def work(bootstrap: str, out: str) -> None:
    """Until the process is ended."""
    consumer = AIOKafkaConsumer(
        SAMPLE.name,
        bootstrap_servers=bootstrap,
        group_id=out,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 << 20,
        fetch_max_bytes=32 << 20,
        fetch_max_wait_ms=100,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=1 << 19, acks=1)
    windows: dict[bytes, Window] = {}
    decode, encode = msgspec.json.Decoder(Sample).decode, msgspec.json.Encoder().encode
    loop = asyncio.get_running_loop()
    commit_at_s = loop.time() + COMMIT_EVERY_S
    sent: list[asyncio.Future[Any]] = []
    async with consumer, producer:
        gc.freeze()
        while True:
            fetched = await consumer.getmany(timeout_ms=500, max_records=RECORDS_MAX)
            for place, records in fetched.items():
                answered = []
                for record in records:
                    window = windows.get(record.key)
                    if window is None:
                        window = windows[record.key] = Window()
                    answered.append((record.key, encode(window.answer(decode(record.value)))))
                sent += await send(producer, out, place, answered)
            if loop.time() >= commit_at_s:
                await asyncio.gather(*sent)
                sent.clear()
                await consumer.commit()
                commit_at_s = loop.time() + COMMIT_EVERY_S


async def send(
    producer: AIOKafkaProducer, out: str, place: TopicPartition, answered: list[tuple[bytes, bytes]]
) -> list[asyncio.Future[Any]]:
    """Whole batches, into the partition that the samples came from."""
    sent = []
    batch = producer.create_batch()
    for key, value in answered:
        if batch.append(key=key, value=value, timestamp=None) is None:
            batch.close()
            sent.append(await producer.send_batch(batch, out, partition=place.partition))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None)
    batch.close()
    sent.append(await producer.send_batch(batch, out, partition=place.partition))
    return sent


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], sys.argv[2]))
