"""Bytes of records by topic and codec, in the batches that agents and workers write. In memory, without Kafka.

``PYTHONPATH=tests python -m bench.record_sizes`` prints ``deploy/cli/measured.json``.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from aiokafka.record.default_records import DefaultRecordBatchBuilder as Builder

from bench import log
from bench.fleet import FleetNode
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.headers import headers
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import KEY
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND, OUTCOME, POLICY, SAMPLE
from slacktide.streams.kept import folded
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker

CODECS: Final[Mapping[str, int]] = {
    "none": 0,
    "gzip": 1,
    "snappy": 2,
    "lz4": 3,
    "zstd": 4,
}
NODES: Final = 12
"""Of one partition and turn: a worker at 1,000 nodes answers about as many together."""
WARM_S, SECONDS = 60, 120
"""Windows hold something first; then two keyframes of each node."""
START_MS = 1_780_000_000_000
BATCH_BYTES = 512 << 10
SOURCES: Final[Mapping[str, object]] = {
    "source": "records_by_pods: PYTHONPATH=tests python -m bench.record_sizes; the others: docs/benchmarks.md",
    "nodes_per_worker": 1_300,
    "nodes_per_worker_from": "1,300 nodes at 1 Hz on one worker: p99 0.22 and 0.27 s, 33% of a core",
    "worker_base_bytes": 135_000_000,
    "worker_node_bytes": 100_000,
    "worker_bytes_from": "Memory: some 100 kB a node of 30 pods; 211 MB at 1,000 nodes leave 111 MB, taken as 135",
}
"""What is not measured here."""


def measured(pods: int, seconds: int = SECONDS) -> dict[str, dict[str, float]]:
    """Records per node and second, and bytes of one by codec, for each topic.

    Args:
        pods: of each node.
        seconds: how long the nodes run, after a while that does not count.

    """
    worker = Worker("sizes")
    worker.policy(_record(POLICY.name, KEY.encode(), encode(log.USUAL_POLICY), START_MS))
    nodes = [FleetNode(number, log.USUAL_POLICY, pods=pods) for number in range(NODES)]
    sizes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for second in range(WARM_S + seconds):
        now_ms = START_MS + second * 1000
        samples = [sample_of(node, now_ms) for node in nodes]
        records = [_record(SAMPLE.name, one.key, one.value, now_ms) for one in samples]
        outs = worker.samples(records, now_ms)
        if second >= WARM_S:
            for sample in samples:
                _add(sizes, [sample])  # each agent has a producer of its own
            for outcome in _outcomes(outs, now_ms):
                _add(sizes, [outcome])
            for topic in {out.topic for out in outs}:
                _add(sizes, [out for out in outs if out.topic == topic])
    for topic in sizes.values():
        records_count = topic.pop("records")
        for codec in CODECS:
            topic[codec] = round(topic[codec] / records_count, 1)
        topic["records_per_s"] = round(records_count / NODES / seconds, 4)
    return {topic: dict(found) for topic, found in sorted(sizes.items())}


def sample_of(node: FleetNode, now_ms: int) -> Out:
    """The node's next sample as its agent writes it."""
    sample = node.sample(now_ms)
    seq = f"{sample.boot_id}/{sample.seq}"
    lines = headers(kind=SAMPLE.name, source=f"agent/{node.name}", subject=node.name, event_id=seq,
                    event_ms=now_ms, trace=f"{node.name}/{seq}")  # fmt: skip
    value = encoded(sample, node.pods)
    return Out(topic=SAMPLE.name, key=node.name.encode(), value=value, headers=lines)


def _outcomes(outs: Iterable[Out], now_ms: int) -> Iterator[Out]:
    """What agents report that apply all limits: use varies much from second to second, so it is much."""
    for out in outs:
        command = decode(out.value, NodeCommand) if out.topic == COMMAND.name and out.value else None
        for hold in command.hold if command else ():
            outcome = NodeOutcome(node=command.node, boot_id=command.boot_id, seq=command.seq, command_id=hold.id,
                                  rule=hold.rule, target=hold.target, origin="stream", result="applied",
                                  policy_version=command.policy_version, observed_ms=command.observed_ms,
                                  acted_ms=now_ms, age_ms=50, after=hold.limits, bound=hold.bound,
                                  terms=hold.terms)  # fmt: skip
            lines = headers(kind=OUTCOME.name, source=f"agent/{command.node}", subject=command.node, event_id=hold.id,
                            event_ms=now_ms, trace=f"{command.node}/{command.boot_id}/{command.seq}")  # fmt: skip
            yield Out(topic=OUTCOME.name, key=command.node.encode(), value=encode(outcome), headers=lines)


def _add(sizes: dict[str, dict[str, float]], outs: list[Out]) -> None:
    found = sizes[outs[0].topic]
    found["records"] += len(outs)
    written = folded(outs)
    for codec, number in CODECS.items():
        found[codec] += len(batch(written, number))


def batch(outs: Iterable[Out], codec: int) -> bytes:
    """One batch as the client writes it."""
    builder = Builder(magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
                      base_sequence=-1, batch_size=BATCH_BYTES)  # fmt: skip
    for offset, out in enumerate(outs):
        taken = builder.append(offset, START_MS, out.key, out.value, list(out.written_headers()))
        assert taken is not None, "a batch has room for all"
    return bytes(builder.build())


def _record(topic: str, key: bytes | None, value: bytes | None, now_ms: int) -> Record:
    return Record(topic=topic, partition=0, offset=0, timestamp_ms=now_ms, key=key, value=value)


if __name__ == "__main__":
    pods = [int(one) for one in sys.argv[1:]] or [10, 30, 100]
    found: dict[str, Any] = {str(count): measured(count) for count in pods}
    sys.stdout.write(
        msgspec.json.format(msgspec.json.encode(SOURCES | {"records_by_pods": found}), indent=1).decode() + "\n"
    )
