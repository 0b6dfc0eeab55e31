"""For information: samples a worker answers per CPU second when it is behind, in columns, in rows, with proofs."""

from __future__ import annotations

from collections.abc import Sequence

from bench import log, loop, proofs, send
from bench.fleet import KEYFRAME_EVERY, PODS
from bench.rig import Rig
from bench.rows import Row, judged, told
from bench.stamp import Form, Stamped, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import COMMAND

SAMPLES, BRIEF_SAMPLES, NODES = 40_000, 2_000, 200
WITHIN_S = 90.0
BYTES_MAX = 1_000


def measure(rig: Rig) -> list[Row]:
    """The worker is held by SIGSTOP while the backlog is written, well within its session."""
    samples = BRIEF_SAMPLES if rig.brief else SAMPLES
    rig.say(f"throughput: making {samples} samples of {NODES} nodes")
    records = backlog(samples)
    rate = _run(rig, records)
    signed = proofs.proven(records)
    with_proofs = _run(rig, signed, proofs.REQUIRED, proofs.arguments(rig.folder))
    said = f"{rate:,.0f} samples/s per CPU second"
    return [
        _size(records),
        told(f"worker at a backlog of {samples:,}", said, n=samples, columns=rate),
        told(
            "the same with node-bound proofs, and without",
            f"{with_proofs:,.0f}, and {rate:,.0f} samples/s per CPU second: {with_proofs / rate:.2f} x",
            n=samples,
            with_proofs=with_proofs,
            without=rate,
        ),
        proofs.check(signed),
    ]


def _size(records: Sequence[Stamped]) -> Row:
    """Of bodies, the first of each node aside: a keyframe begins its boot."""
    plain = min(len(record.value) for record in records)
    whole = max(len(record.value) for record in records)
    each = sum(len(record.value) for record in records[NODES:]) / (len(records) - NODES)
    return judged(
        f"a sample of {PODS} pods in columns, keyframes included",
        f"<= {BYTES_MAX:,} B",
        f"{each:,.0f} B: {plain:,} at least, {whole:,} in a keyframe, each {KEYFRAME_EVERY}th",
        met=each <= BYTES_MAX,
        n=len(records) - NODES,
        bytes=each,
    )


def backlog(samples: int, form: Form = "columns") -> list[Stamped]:
    """Samples that end now, in the order in which they would have come."""
    rounds = samples // NODES
    start_ms = SystemClock().wall_ms() - rounds * 1000
    nodes = [StampedNode(number, log.POLICY_IN_FORCE, form=form) for number in range(NODES)]
    return [node.stamp(start_ms + second * 1000) for second in range(rounds) for node in nodes]


def _run(
    rig: Rig,
    records: list[Stamped],
    policy: Policy = log.POLICY_IN_FORCE,
    more: Sequence[str] = (),
) -> float:
    bootstrap = rig.kafka().bootstrap
    rig.say(f"throughput: a worker{', with proofs' if more else ''}")
    with loop.worker(rig, bootstrap, policy, more) as worker:
        send.write(bootstrap, records[0].topic, records[:NODES])
        log.wait_for(bootstrap, COMMAND, NODES, WITHIN_S, worker)
        worker.process.suspend()
        try:
            send.write(bootstrap, records[0].topic, records[NODES:])
        finally:
            worker.process.resume()
        cpu_s = worker.cpu_s()
        log.wait_for(bootstrap, COMMAND, len(records), WITHIN_S, worker)
        return (len(records) - NODES) / (worker.cpu_s() - cpu_s)
