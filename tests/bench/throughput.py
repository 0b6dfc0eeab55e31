"""For information: samples a worker answers per CPU second when it is behind, both shells on the same backlog."""

from __future__ import annotations

from collections.abc import Sequence

from bench import log, loop, proofs, send
from bench.rig import Rig
from bench.rows import Row, told
from bench.stamp import Stamped, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import COMMAND, SAMPLE

SAMPLES, BRIEF_SAMPLES, NODES = 20_000, 2_000, 200
WITHIN_S = 90.0


def measure(rig: Rig) -> list[Row]:
    """The worker is held by SIGSTOP while the backlog is written, well within its session."""
    samples = BRIEF_SAMPLES if rig.brief else SAMPLES
    rig.say(f"throughput: making {samples} samples of {NODES} nodes")
    records = backlog(samples)
    rates = {shell: _run(rig, shell, records) for shell in loop.SHELLS}
    signed = proofs.proven(records)
    with_proofs = _run(rig, "faust", signed, proofs.REQUIRED, proofs.arguments(rig.folder))
    ratio = rates["faust"] / rates["plain"]
    bytes_each = sum(len(record.value) for record in records) / len(records)
    said = f"Faust {rates['faust']:,.0f}, plain {rates['plain']:,.0f} samples/s per CPU second: {ratio:.2f} x"
    return [
        told(
            f"worker at a backlog of {samples:,}",
            f"{said}; {bytes_each:.0f} B a sample",
            n=samples,
            ratio=ratio,
            **rates,
        ),
        told(
            "the same with node-bound proofs, and without",
            f"Faust {with_proofs:,.0f}, and {rates['faust']:,.0f} samples/s per CPU second: "
            f"{with_proofs / rates['faust']:.2f} x",
            n=samples,
            with_proofs=with_proofs,
            without=rates["faust"],
        ),
        proofs.check(signed),
    ]


def backlog(samples: int) -> list[Stamped]:
    """Samples that end now, in the order in which they would have come."""
    rounds = samples // NODES
    start_ms = SystemClock().wall_ms() - rounds * 1000
    nodes = [StampedNode(number, log.POLICY_IN_FORCE) for number in range(NODES)]
    return [node.stamp(start_ms + second * 1000) for second in range(rounds) for node in nodes]


def _run(
    rig: Rig,
    shell: loop.Shell,
    records: list[Stamped],
    policy: Policy = log.POLICY_IN_FORCE,
    more: Sequence[str] = (),
) -> float:
    bootstrap = rig.kafka().bootstrap
    rig.say(f"throughput: {loop.TITLES[shell]} worker{', with proofs' if more else ''}")
    with loop.worker(rig, bootstrap, shell, policy, more) as worker:
        send.write(bootstrap, SAMPLE.name, records[:NODES])
        log.wait_for_end(bootstrap, COMMAND, NODES, WITHIN_S, worker)
        worker.process.suspend()
        try:
            send.write(bootstrap, SAMPLE.name, records[NODES:])
        finally:
            worker.process.resume()
        cpu_s = worker.cpu_s()
        log.wait_for_end(bootstrap, COMMAND, len(records), WITHIN_S, worker)
        return (len(records) - NODES) / (worker.cpu_s() - cpu_s)
