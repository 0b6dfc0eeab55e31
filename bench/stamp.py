"""A fleet's samples by the ten thousand: encoded once per node, then only their numbers are filled in. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import ClassVar, Literal, TypeAlias

import msgspec

from bench.fleet import KEYFRAME_EVERY, PODS, FleetNode, name_of
from slacktide.schemas.codec import encode
from slacktide.schemas.headers import headers
from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import NODE_PARTITIONS, SAMPLE
from slacktide.streams.kafka import partition_of

MARK = 7_000_000_000_000
"""Numbers from here on stand in an encoded sample where its own will be."""
VARIETY = 97
"""Seconds until a node's use repeats: a prime, so that no window has a whole number of them."""
SYSTEM_MILLI = 400
NODE_MEM_BYTES, MEM_STEP_BYTES = 20 << 30, 7 << 20
Form: TypeAlias = Literal["rows", "columns"]
"""Of samples: what an agent writes are columns; in rows, each pod has its names, for peers to read."""


def _factors() -> list[tuple[float, ...]]:
    dice = random.Random(0)
    return [tuple(dice.uniform(0.7, 1.3) for _ in range(PODS)) for _ in range(VARIETY)]


FACTORS = _factors()


@dataclass(frozen=True, slots=True)
class Stamped:
    """One record, ready to be sent."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    at_ms: int


class StampedNode:
    """One node of a fleet; a sample of it costs some 10 us."""

    KIND: ClassVar[type[FleetNode]] = FleetNode

    def __init__(self, number: int, policy: Policy, *, replaced_each_s: int = 0, form: Form = "columns") -> None:
        """Make one that has sent nothing yet.

        Args:
            number: names the node, and draws its pods and their use.
            policy: that its samples name.
            replaced_each_s: after so many samples on average a pod is replaced; 0: never.
            form: of its samples.

        """
        self._columns = form == "columns"
        self._node = self.KIND(number, policy)
        self.partition = partition_of(self._node.name, NODE_PARTITIONS)
        self._number = number
        self._key = self._node.name.encode()
        self._replaced_each_s = replaced_each_s
        self._dice = random.Random(-1 - number)
        self._seq = 0
        self._write()

    @property
    def pods(self) -> list[Pod]:
        """The list that its newest sample names."""
        return self._node.pods

    @property
    def name(self) -> str:
        """Of the node."""
        return self._node.name

    @property
    def boot_id(self) -> str:
        """Of its agent's start."""
        return self._boot_id.decode()

    def stamp(self, now_ms: int, interval_ms: int = 1000) -> Stamped:
        """The next sample; the first and every 60th carry pods and facts, as does one after a change.

        Args:
            now_ms: when it was taken, UTC epoch.
            interval_ms: since the one before it; the first one has none.

        """
        replaced = bool(self._replaced_each_s) and self._dice.randrange(self._replaced_each_s) == 0
        if replaced:
            self._node.replace_pod(self._dice.randrange(PODS))
            self._write()
        # Nodes did not start all at once, so their keyframes do not come at once.
        whole = replaced or self._seq == 0 or (self._seq + self._number) % KEYFRAME_EVERY == 0
        self._seq += 1
        cpu, mem = self.pods_cpu_milli(now_ms), self.pods_mem_bytes()
        each = [figure for pod in zip(cpu, mem, strict=True) for figure in pod]
        mem_bytes = NODE_MEM_BYTES + (self._seq + self._number) % VARIETY * MEM_STEP_BYTES
        interval_ms = interval_ms if self._seq > 1 else 0
        numbers = (self._seq, now_ms, interval_ms, sum(cpu) + SYSTEM_MILLI, mem_bytes, *each)
        body = (self._whole if whole else self._plain) % numbers
        return Stamped(SAMPLE.name, self.partition, self._key, body, self._headers(now_ms), now_ms)

    def pods_cpu_milli(self, now_ms: int) -> list[int]:
        """What each pod uses now."""
        return self._varied(self._cpu_milli)

    def pods_mem_bytes(self) -> list[int]:
        """The same of memory."""
        return self._varied(self._mem_bytes)

    def _varied(self, usual: list[int]) -> list[int]:
        factors = FACTORS[(self._seq + self._number) % VARIETY]
        return [int(one * factor) for one, factor in zip(usual, factors, strict=True)]

    def _write(self) -> None:
        self._node.sample(MARK)  # its limit follows from it
        shape = self._node.shape(MARK, keyframe=False)
        self._cpu_milli = [use.cpu_milli or 0 for use in shape.pod_use]
        # So little that all pods together stay below what the node uses.
        self._mem_bytes = [(use.mem_bytes or 0) >> 1 for use in shape.pod_use]
        pods = self._node.pods if self._columns else None
        self._plain = template(shape, pods)
        self._whole = template(self._node.shape(MARK, keyframe=True), pods)
        self._boot_id = shape.boot_id.encode()
        fixed = headers(
            kind=SAMPLE.name, source=f"agent/{self._node.name}", subject=self._node.name, event_id="", event_ms=0
        )
        self._fixed = [line for line in fixed if line[0] not in {"ce_id", "ce_time"}]

    def _headers(self, now_ms: int) -> list[tuple[str, bytes]]:
        return [
            *self._fixed,
            ("ce_id", b"%s/%d" % (self._boot_id, self._seq)),
            ("ce_time", _written(now_ms)),
            ("traceparent", b"00-%016x%016x-%016x-01" % (self._number + 1, self._seq, self._seq)),
        ]


def evenly(per_partition: int) -> list[int]:
    """Numbers of nodes of which each partition has as many: whoever reads all partitions in turn reads them evenly."""
    found: dict[int, list[int]] = {partition: [] for partition in range(NODE_PARTITIONS)}
    for number in count():
        its = found[partition_of(name_of(number), NODE_PARTITIONS)]
        if len(its) < per_partition:
            its.append(number)
        if all(len(numbers) == per_partition for numbers in found.values()):
            break
    return sorted(number for numbers in found.values() for number in numbers)


def template(sample: NodeSample, pods: Sequence[Pod] | None = None) -> bytes:
    """The encoded sample with a place for each number: seq, time, interval, node CPU and memory, each pod's two.

    Args:
        sample: whose other fields stay. Its pods' use is in the order of the list.
        pods: the list that the sample names, for columns; None: rows.

    """
    marks = iter(range(MARK, MARK + 5 + 2 * len(sample.pod_use)))
    marked = msgspec.structs.replace(
        sample,
        seq=next(marks),
        observed_ms=next(marks),
        interval_ms=next(marks),
        use=msgspec.structs.replace(sample.use, cpu_milli=next(marks), mem_bytes=next(marks)),
        pod_use=[msgspec.structs.replace(use, cpu_milli=next(marks), mem_bytes=next(marks)) for use in sample.pod_use],
    )
    pieces = []
    rest = (encode(marked) if pods is None else encoded(marked, pods)).replace(b"%", b"%%")
    for mark in range(MARK, MARK + 5 + 2 * len(sample.pod_use)):
        before, found, rest = rest.partition(b"%d" % mark)
        assert found, "fields are written in declared order"
        pieces.append(before)
    return b"%d".join([*pieces, rest])


@lru_cache(maxsize=16)
def _written(now_ms: int) -> bytes:
    text = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z").encode()
