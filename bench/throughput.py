"""For information: samples a worker answers per CPU second when it is behind, with proofs and with pressure, too."""

import random
from collections.abc import Sequence

import msgspec

from bench import log, loop, proofs, send
from bench.fleet import KEYFRAME_EVERY, PODS, FleetNode
from bench.rig import Rig
from bench.rows import Row, judged, told
from bench.stamp import Stamped, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.sample import LsPressure, NodeSample, PressureGate, PressureLook
from slacktide.schemas.topics import COMMAND

SAMPLES, BRIEF_SAMPLES, NODES = 40_000, 2_000, 200
WITHIN_S = 90.0
BYTES_MAX = 1_000
PRESSURE_LEAST = 0.9
BY_PRESSURE = policy_of(
    log.POLICY_IN_FORCE.colocation,
    msgspec.structs.replace(log.POLICY_IN_FORCE.resource_threshold, cpu_suppress_signal="pressure"),
)


class PressedNode(FleetNode):
    """A node with ten looks a second, none of which cuts."""

    def shape(self, now_ms: int, *, keyframe: bool) -> NodeSample:
        """The sample, with looks."""
        dice = random.Random(self.name)
        looks = [
            PressureLook(
                span_us=dice.randrange(99_000, 101_000),
                ls_cpu_us=dice.randrange(200_000, 400_000),
                be_cpu_us=dice.randrange(100_000, 300_000),
                idle_us=dice.randrange(500_000),
                cpu_stall_us=dice.randrange(60_000),
                mem_stall_us=dice.randrange(900),
                throttled_us=dice.randrange(9_000),
            )
            for _ in range(10)
        ]
        pressure = LsPressure(gate=PressureGate(base_permille=dice.randrange(200)), looks=looks)
        return msgspec.structs.replace(super().shape(now_ms, keyframe=keyframe), ls_pressure=pressure)


class PressedStamped(StampedNode):
    """Its samples."""

    KIND = PressedNode


def measure(rig: Rig) -> list[Row]:
    """The worker is held by SIGSTOP while the backlog is written, well within its session."""
    samples = BRIEF_SAMPLES if rig.brief else SAMPLES
    rig.say(f"throughput: making {samples} samples of {NODES} nodes")
    records = backlog(samples)
    rate = _run(rig, records)
    signed = proofs.proven(records)
    with_proofs = _run(rig, signed, proofs.REQUIRED, proofs.arguments(rig.folder))
    pressed = _run(rig, backlog(samples, BY_PRESSURE, PressedStamped), BY_PRESSURE)
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
        judged(
            "the same with ten looks a second under a policy with pressure, by the rate without",
            f">= {PRESSURE_LEAST} x",
            f"{pressed / rate:.2f} x: {pressed:,.0f} samples/s per CPU second",
            met=pressed >= PRESSURE_LEAST * rate,
            n=samples,
            pressed=pressed,
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


def backlog(
    samples: int,
    policy: Policy = log.POLICY_IN_FORCE,
    kind: type[StampedNode] = StampedNode,
) -> list[Stamped]:
    """Samples that end now, in the order in which they would have come."""
    rounds = samples // NODES
    start_ms = SystemClock().wall_ms() - rounds * 1000
    nodes = [kind(number, policy) for number in range(NODES)]
    return [node.stamp(start_ms + second * 1000) for second in range(rounds) for node in nodes]


def _run(
    rig: Rig,
    records: list[Stamped],
    policy: Policy = log.POLICY_IN_FORCE,
    more: Sequence[str] = (),
) -> float:
    bootstrap = rig.kafka().bootstrap
    how = ", with proofs" if more else ", with pressure" if policy is BY_PRESSURE else ""
    rig.say(f"throughput: a worker{how}")
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
