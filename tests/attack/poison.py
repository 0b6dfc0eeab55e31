"""Records that nobody should choke on: wrong clocks, numbers without bounds, every codec, bombs."""

import asyncio
import contextlib
import json
import math
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaProducer

from attack.listing import attack, now_ms, restart_a_worker
from attack.target import GROWS_MB_MAX, Target
from attack.wire import Raw, of
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.topics import BACKFILL, COMMAND, CREDIT, INVENTORY, METRIC, OUTCOME, POLICY, SAMPLE, Topic
from testbed.samples import body_of, keyframe

YEAR_MS = 365 * 24 * 3_600_000

HOUR_MS = 3_600_000

PARTITIONS = 4

HUGE = [10**19, 2**63, 2**64, 10**30, -(10**30), 10**308, 10**400, -1, -(2**63) - 1]

CODECS = ["gzip", "snappy", "lz4", "zstd"]

ZEROS_BYTES = 4 << 20


@attack
def a_clock_that_is_wrong(target: Target) -> None:
    """Records and event times of 1970, of tomorrow, of the year 9999: by the record's time and by the body's."""
    off_ms = target.dice.choice([2 * HOUR_MS, -2 * HOUR_MS, 10 * YEAR_MS, -30 * YEAR_MS])
    times = [0, target.dice.randrange(1, 10_000), now_ms() + off_ms]
    for at_ms in times:
        node = target.ghost()
        bodies = [keyframe(seq, node, observed_ms=at_ms) for seq in range(1, 4)]
        for topic in (SAMPLE, BACKFILL):
            with contextlib.suppress(Exception):  # a broker that stamps records itself takes them; another refuses
                target.system.put(*(of(topic, node, body, at_ms=at_ms) for body in bodies))
    restart_a_worker(target)


def mutated(dice: random.Random, body: dict[str, Any], value: object) -> dict[str, Any]:
    """One of the numbers in it becomes another value."""
    places: list[tuple[Any, Any]] = []

    def walk(found: Any) -> None:
        for key, one in found.items() if isinstance(found, dict) else enumerate(found):
            if isinstance(one, (dict, list)):
                walk(one)
            elif isinstance(one, int) and not isinstance(one, bool):
                places.append((found, key))

    walk(body)
    container, key = dice.choice(places)
    container[key] = value
    return body


def written(node: str, body: dict[str, Any]) -> Raw:
    return Raw(SAMPLE.name, node.encode(), json.dumps(body, separators=(",", ":")).encode())


@attack
def numbers_that_no_machine_has(target: Target) -> None:
    """Of a node's facts, its pods, its use, its limits: what overflows 64 bits, a float, or makes no sense."""
    dice, records = target.dice, []
    for _ in range(40):
        value = dice.choice([*HUGE, dice.randrange(10 ** dice.randrange(19, 500))])
        for _ in range(2):
            node = target.ghost()
            records.append(written(node, mutated(dice, json.loads(body_of(keyframe(1, node))), value)))
    for field in ("capacity", "allocatable"):
        for value in (10**30, 10**400):
            node = target.ghost()
            body = json.loads(body_of(keyframe(1, node)))
            body["facts"][field]["cpu_milli"] = value
            records.append(written(node, body))
    target.system.put(*records)
    time.sleep(8)  # until those that were taken count as silent: what is published of silent nodes is figured anew


@attack
def floats_beyond_all_bounds(target: Target) -> None:
    """Where a float may stand."""
    records = []
    for value in (1e308, -1e308, math.nextafter(0, 1)):
        node = target.ghost()
        whole = json.loads(body_of(keyframe(1, node)))
        state = {"usage_milli": value, "request_milli": value, "limit_milli": value}
        evict = {"be_cpu": {"average": state, "current": state, "samples": 9, "interval_s": 9}}
        head = {"of": whole.pop("of"), "now": whole.pop("now"), "more": {"evict": evict}, "psi": [value] * 5}
        records.append(written(node, head | whole))
    target.system.put(*records)


def kcat(target: Target, topic: str, codec: str, records: list[tuple[str, bytes]]) -> None:
    """Write with another client, which has all codecs. Bodies hold no newline."""
    lines = b"\n".join(key.encode() + b"\t" + value for key, value in records)
    command = ["kcat", "-P", "-b", target.system.bootstrap, "-t", topic, "-z", codec, "-K", "\t"]
    target.system.in_test(lambda: subprocess.run(command, input=lines, check=True, capture_output=True, timeout=60))


@attack
def records_packed_by_every_codec(target: Target) -> Callable[[], None]:
    """Batches that a client compressed. They are answered like all others."""
    nodes = {codec: target.ghost() for codec in CODECS}
    for codec, node in nodes.items():
        kcat(target, SAMPLE.name, codec, [(node, body_of(keyframe(seq, node))) for seq in range(1, 9)])
        kcat(target, target.dice.choice([COMMAND, OUTCOME, METRIC, BACKFILL]).name, codec, [(node, b"{}")] * 3)
    since_ms = now_ms() - 20_000

    def answered() -> None:
        def all_of_them() -> bool:
            found = target.recent(since_ms).of(COMMAND, NodeCommand)
            return set(nodes.values()) <= {entry.body.node for entry in found}

        target.wait(all_of_them, "samples by every codec are answered")

    return answered


def bomb(target: Target, topic: Topic, node: str, inflated_mb: int) -> None:
    """One batch of zeros: a thousandth of it on its way and on the disk."""

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=target.system.bootstrap,
            compression_type="gzip",
            max_batch_size=inflated_mb << 21,
            max_request_size=inflated_mb << 21,
            request_timeout_ms=90_000,
        )
        try:
            await producer.start()
            batch = producer.create_batch()
            for _ in range((inflated_mb << 20) // ZEROS_BYTES):
                batch.append(key=node.encode(), value=bytes(ZEROS_BYTES), timestamp=None)
            batch.close()
            partition = 0 if topic.partitions == 1 else target.dice.randrange(PARTITIONS)
            await (await producer.send_batch(batch, topic.name, partition=partition))
        finally:
            await producer.stop()

    target.system.in_test(lambda: asyncio.run(send()))


@attack
def a_bomb_in_one_batch(target: Target) -> None:
    """What is small on its way and huge in memory, in a topic of workers, and in one of agents."""
    for topic in (
        SAMPLE,
        target.dice.choice([COMMAND, POLICY, CREDIT, INVENTORY, OUTCOME, BACKFILL]),
    ):
        bomb(target, topic, target.ghost(), target.dice.randrange(2 * round(GROWS_MB_MAX), 400))
