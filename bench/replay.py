"""Figure: how long a day of a hundred nodes takes to be decided again; a part of it is, and the rest follows."""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

from bench import log
from bench.process import SLACKTIDE, Running
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged
from bench.stamp import StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.codec import encode
from slacktide.schemas.policy import KEY
from slacktide.schemas.topics import POLICY, SAMPLE
from slacktide.streams.analysis.replay.lines import REPLAYED, Header, end_line, head_line, line_of
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker

NODES, DAY_S = 100, 86_400
SECONDS, BRIEF_SECONDS = 900, 150
WITHIN_S = 900.0
DAY_MIN = 4.0
LIGHTLY_PACKED = 1


def measure(rig: Rig) -> list[Row]:
    """The samples of a hundred nodes with what a worker said to them, replayed from a file as a user would."""
    seconds = BRIEF_SECONDS if rig.brief else SECONDS
    file = rig.folder / "trace.jsonl.gz"
    rig.say(f"replay: writing {seconds} s of {NODES} nodes")
    records = _write(file, seconds)
    rig.say(f"replay: {records} records, {file.stat().st_size >> 20} MB")
    began_s = time.monotonic()
    with Running(rig, "replay", [SLACKTIDE, "replay", str(file), "--output", "json"]) as run:
        code = run.wait_end(WITHIN_S)
        took_s = time.monotonic() - began_s
        result = json.loads(next(line for line in run.said().splitlines() if line.startswith("{")))
    if code or result["samples"] != NODES * seconds or result["commands"] != {"equal": NODES * seconds}:
        raise CannotRunError(f"exit code {code}: {result['commands']} of {result['samples']} samples")
    day_min = took_s * DAY_S / seconds / 60
    said = f"{day_min:.1f} min, from {seconds} s of them in {took_s:.0f} s; all {result['samples']:,} answers equal"
    return [
        judged(
            f"replay: 24 h of {NODES} nodes",
            f"<= {DAY_MIN:g} min",
            said,
            met=day_min <= DAY_MIN,
            n=result["samples"],
            day_min=day_min,
            took_s=took_s,
        )
    ]


def _write(file: Path, seconds: int) -> int:
    begin_ms = SystemClock().wall_ms() - seconds * 1_000
    head = Header(since_ms=begin_ms, until_ms=begin_ms + (seconds + 1) * 1_000, topics=REPLAYED)
    written = 0
    with gzip.open(file, "wb", LIGHTLY_PACKED) as out:
        out.write(head_line(head))
        for record in _trace(begin_ms, seconds):
            out.write(line_of(record))
            written += 1
        out.write(end_line(written))
    return written


def _trace(begin_ms: int, seconds: int) -> Iterator[Record]:
    """The policy, then second by second the samples and what a worker says of them."""
    policy = Record(
        topic=POLICY.name,
        partition=0,
        offset=0,
        timestamp_ms=begin_ms - 1,
        key=KEY.encode(),
        value=encode(log.USUAL_POLICY),
    )
    yield policy
    worker = Worker("bench")
    worker.policy(policy)
    nodes = [StampedNode(number, log.USUAL_POLICY) for number in range(NODES)]
    offsets: dict[tuple[str, int], int] = {}

    def placed(topic: str, partition: int, at_ms: int, key: bytes | None, value: bytes | None) -> Record:
        offset = offsets[topic, partition] = offsets.get((topic, partition), -1) + 1
        return Record(topic=topic, partition=partition, offset=offset, timestamp_ms=at_ms, key=key, value=value)

    for second in range(seconds):
        at_ms = begin_ms + second * 1_000
        stamped = [node.stamp(at_ms) for node in nodes]
        samples = [placed(SAMPLE.name, one.partition, at_ms, one.key, one.value) for one in stamped]
        yield from samples
        for out in worker.samples(samples, at_ms):
            if out.topic in REPLAYED:
                yield placed(out.topic, out.partition or 0, at_ms, out.key, out.value)
