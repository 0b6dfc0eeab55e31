"""The peer without a framework: aiokafka's fetches, msgspec, a deque per node.

``python -m bench.peers.plain_aiokafka BROKER SAMPLES rows|columns OUT``
"""

import asyncio
import gc
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.peers.answer import WINDOW_S, answer
from bench.peers.joined import CPU, MEM, TIME, Use, uses

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


class Of(msgspec.Struct, gc=False):
    node: str
    be_group: str


class Pod(msgspec.Struct, gc=False):
    uid: str


class Columns(msgspec.Struct, gc=False):
    of: Of
    now: list[int]
    pods: list[Pod] | None = None


class Seen(NamedTuple):
    """A sample of either form."""

    node: str
    observed_ms: int
    cpu_milli: int
    mem_bytes: int
    pods: list[Use]


Read = Callable[[bytes], Seen]


def rows() -> Read:
    """Read samples in rows."""
    decode = msgspec.json.Decoder(Sample).decode

    def read(body: bytes) -> Seen:
        sample = decode(body)
        pods = [(use.uid, use.cpu_milli, use.mem_bytes, use.best_effort_group) for use in sample.pod_use]
        return Seen(sample.node, sample.observed_ms, sample.use.cpu_milli, sample.use.mem_bytes, pods)

    return read


def columns() -> Read:
    """Read samples in columns; the pods of a node are those of its newest keyframe."""
    decode = msgspec.json.Decoder(Columns).decode
    uids: dict[str, list[str]] = {}

    def read(body: bytes) -> Seen:
        sample = decode(body)
        of, now = sample.of, sample.now
        if sample.pods is not None:
            uids[of.node] = [pod.uid for pod in sample.pods]
        return Seen(of.node, now[TIME], now[CPU], now[MEM], uses(uids[of.node], of.be_group, now))

    return read


FORMS = {"rows": rows, "columns": columns}


class PodSum:
    """Of one pod over the window."""

    __slots__ = ("count", "cpu_milli", "mem_bytes")

    def __init__(self) -> None:
        self.count = self.cpu_milli = self.mem_bytes = 0


class Window:
    """The last minute of one node: its samples, and its pods' sums."""

    def __init__(self) -> None:
        self._samples: deque[Seen] = deque()
        self._pods: dict[str, PodSum] = {}

    def answer(self, sample: Seen) -> dict[str, Any]:
        """Take one sample in, and answer it."""
        self._drop_before(sample.observed_ms - WINDOW_S * 1000)
        self._samples.append(sample)
        system_milli, system_bytes = sample.cpu_milli, sample.mem_bytes
        pods = []
        for uid, cpu_milli, mem_bytes, batch in sample.pods:
            pod = self._pods.get(uid)
            if pod is None:
                pod = self._pods[uid] = PodSum()
            pod.count += 1
            pod.cpu_milli += cpu_milli
            pod.mem_bytes += mem_bytes
            system_milli -= cpu_milli
            system_bytes -= mem_bytes
            pods.append((uid, pod.cpu_milli / pod.count, pod.mem_bytes / pod.count, batch))
        return answer(
            sample.node,
            sample.observed_ms,
            [one.cpu_milli for one in self._samples],
            [one.mem_bytes for one in self._samples],
            pods,
            (system_milli, system_bytes),
        )

    def _drop_before(self, observed_ms: int) -> None:
        while self._samples and self._samples[0].observed_ms <= observed_ms:
            for uid, cpu_milli, mem_bytes, _ in self._samples.popleft().pods:
                pod = self._pods[uid]
                pod.count -= 1
                pod.cpu_milli -= cpu_milli
                pod.mem_bytes -= mem_bytes
                if not pod.count:
                    del self._pods[uid]


async def work(bootstrap: str, samples: str, read: Read, out: str) -> None:
    """Until the process is ended."""
    consumer = AIOKafkaConsumer(
        samples,
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
    encode = msgspec.json.Encoder().encode
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
                    answered.append((record.key, encode(window.answer(read(record.value)))))
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
    broker, samples_topic, form, out_topic = sys.argv[1:]
    uvloop.run(work(broker, samples_topic, FORMS[form](), out_topic))
