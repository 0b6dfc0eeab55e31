"""Figures: a thousand nodes on a real API server: what is written, how fast load is seen, how well pods are placed."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.colony import ASKED, Colony, Placed, colony
from bench.fleet import name_of
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, told
from bench.tides import CPU_MILLI, STEP_PART, STEPPED_EACH, load_milli
from slacktide.agents.clock import SystemClock
from slacktide.deploy.demo.figures import percentile
from slacktide.schemas.codec import decode
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import SCORE
from testbed.rungs import built_program

NODES, BRIEF_NODES = 1_000, 100
PODS_PER_NODE = 2
RATIO_MIN = 0.7
SEEN_MS = 2_000
CPU_MS_MAX = 5.0
PODS_RATIO_MIN = 0.8
WRITES_A_MINUTE, SAVED = {"status": 0.5, "metric": 1.0}, {"status": 3, "metric": 1}
"""Of each node at most, and what a quiet one has saved up."""
STANDING_S, STEP_S = 10.0, 15.0
FILL_S, POLL_S = 300.0, 0.1
SETTLED_S = 5.0
LINE_PART = 0.65
"""Of a node's CPU: the line that load-aware scheduling keeps."""
BATCH_USE_PART = 0.85
"""What a batch pod is taken to use of what it asks for."""
AFTER_S = 240
"""How long placed pods stay, one whole tide."""


def measure(rig: Rig) -> list[Row]:
    """One after the other, in one cluster."""
    nodes = rig.nodes or (BRIEF_NODES if rig.brief else NODES)
    kwok = built_program("kwok").exists()
    rig.say(f"cluster: {nodes} nodes, {'kwok' if kwok else 'nobody'} plays them")
    with colony(rig, nodes) as at:
        at.start_nodes(rig.each_s, kwok=kwok)
        begin_s = time.monotonic()
        rows: list[Row] = []
        for part in (_written, _seen, _placed):
            for row in part(at):
                rig.say(f"cluster: {row.figure}: {row.measured}")
                rows.append(row)
        return [*rows, *_writes(at, time.monotonic() - begin_s)]


def _written(at: Colony) -> list[Row]:
    """All nodes' batch resource for the first time, against a loop that does nothing but write, before and after.

    Judged is by the loop after: what the bridge does beside, above all hearing of every node that changed, goes on
    then as it did while it wrote, and so do the policy and the figures that came with it.
    """
    before = at.bare_patches_per_s("1")
    at.rig.say(f"cluster: a bare loop writes {before:.0f} nodes' status a second, without a bridge")
    rate = _first_writes_per_s(at)
    at.rig.say(f"cluster: the bridge {rate:.0f}")
    time.sleep(SETTLED_S)
    after = at.bare_patches_per_s("2")
    said = (
        f"{rate / after:.2f}: {rate:.0f} nodes a second, a bare loop beside the bridge {after:.0f}, "
        f"with no bridge there {before:.0f} ({rate / before:.2f})"
    )
    return [
        judged("batch resource first written on all nodes, against a bare loop", f">= {RATIO_MIN}", said,
               met=rate >= RATIO_MIN * after, n=at.nodes, bare_per_s=after, bare_alone_per_s=before, bridge_per_s=rate)
    ]  # fmt: skip


def _first_writes_per_s(at: Colony) -> float:
    """From the bridge's first write until it has written to all nodes; then all show batch resource."""
    at.start_bridge()
    begin_s = time.monotonic()
    until_s = begin_s + FILL_S
    while (written := at.bridge.labelled("slacktide_bridge_writes_total", kind="status")) < at.nodes:
        at.bridge.check()
        if not written:
            begin_s = time.monotonic()
        if time.monotonic() > until_s:
            raise CannotRunError(f"{written:.0f} writes to {at.nodes} nodes")
        time.sleep(POLL_S)
    took_s = time.monotonic() - begin_s
    if (selling := at.selling()) < at.nodes:
        raise CannotRunError(f"{selling} of {at.nodes} nodes show batch resource")
    return at.nodes / took_s


def _seen(at: Colony) -> list[Row]:
    """How long after the load of every tenth node steps up its score says at least half of that."""
    ages_ms = asyncio.run(_step(at))
    stepped = len(range(0, at.nodes, STEPPED_EACH))
    p50, p95 = percentile(ages_ms, 50), percentile(ages_ms, 95)
    met = len(ages_ms) == stepped and p95 is not None and p95 <= SEEN_MS
    said = f"p50 {p50} ms, p95 {p95} ms, of {stepped} nodes {len(ages_ms)} within {STEP_S:g} s (averages over 2 s)"
    return [judged("a load step in the scores", f"p95 <= {SEEN_MS / 1_000:g} s", said, met=met, n=len(ages_ms))]


async def _step(at: Colony) -> list[int]:
    clock = SystemClock()
    numbers = {name_of(number): number for number in range(0, at.nodes, STEPPED_EACH)}
    seen: dict[str, int] = {}
    async with AIOKafkaConsumer(bootstrap_servers=at.bootstrap) as consumer:
        places = [TopicPartition(SCORE.name, one) for one in range(SCORE.partitions)]
        consumer.assign(places)
        await consumer.seek_to_end(*places)
        step_ms = clock.wall_ms()
        at.set_step(step_ms)
        try:
            while clock.wall_ms() < step_ms + STEP_S * 1_000 and len(seen) < len(numbers):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        number = numbers.get((record.key or b"").decode())
                        if number is None or record.value is None:
                            continue
                        before = load_milli(number, step_ms)
                        if decode(record.value, NodeScore).use.cpu_milli >= before + STEP_PART * CPU_MILLI / 2:
                            seen.setdefault(name_of(number), record.timestamp - step_ms)
        finally:
            at.set_step(None)
    return sorted(seen.values())


def _placed(at: Colony) -> Iterator[Row]:
    """The same pods with the extender, and by a kube-scheduler that has none: as it is installed, and in a hurry."""
    standing_s = at.meter.cpu_s("scheduler")
    time.sleep(STANDING_S)
    standing = (at.meter.cpu_s("scheduler") - standing_s) / STANDING_S
    both = _both(at, limited=True)
    yield _cost(both[0], standing)
    yield judged(
        "pods a second with the extender, against without", f">= {PODS_RATIO_MIN}", _said(both, at),
        met=_ratio(both) >= PODS_RATIO_MIN, n=PODS_PER_NODE * at.nodes, **_rates(both),
    )  # fmt: skip
    yield from _costs(at)
    hurried = _both(at, limited=False)
    yield told("the same without the client's limit", _said(hurried, at), n=PODS_PER_NODE * at.nodes, **_rates(hurried))
    yield _over_line([both, hurried], at)


def _cost(with_it: Placed, standing: float) -> Row:
    """``standing``: what part of a core the extender takes when nobody asks."""
    bound = max(1, len(with_it.bound))
    per_pod_ms = 1_000 * (with_it.extender_cpu_s - standing * with_it.took_s) / bound
    all_ms = 1_000 * with_it.extender_cpu_s / bound
    resting = f"{all_ms:.1f} with what it costs to follow log and pods ({100 * standing:.1f}% of a core at rest)"
    return judged(
        "extender, CPU per pod", f"<= {CPU_MS_MAX:g} ms", f"{per_pod_ms:.1f} ms; {resting}",
        met=per_pod_ms <= CPU_MS_MAX, n=len(with_it.bound), per_pod_ms=per_pod_ms, standing=standing,
    )  # fmt: skip


def _over_line(rounds: Sequence[tuple[Placed, Placed]], at: Colony) -> Row:
    """Both rounds: what a load that moves is like just when pods come is luck."""
    names = "with", "without"
    over = {name: sum(over_line_s(both[turn], at.nodes) for both in rounds) for turn, name in enumerate(names)}
    bound = {name: sum(len(both[turn].bound) for both in rounds) for turn, name in enumerate(names)}
    pods = len(rounds) * PODS_PER_NODE * at.nodes
    less = 1 - over["with"] / over["without"] if over["without"] else 0.0
    said = f"{over['with']} with load-awareness, {over['without']} without: {less:.0%} fewer"
    return judged(
        f"node-seconds over {LINE_PART:.0%} of CPU within {AFTER_S} s", "fewer",
        f"{said}; {bound['with']} and {bound['without']} of {pods} bound, in {len(rounds)} rounds",
        met=over["with"] < over["without"], n=pods, over=over, bound=bound,
    )  # fmt: skip


def _both(at: Colony, *, limited: bool) -> tuple[Placed, Placed]:
    """With the extender, and without."""
    pods, found = PODS_PER_NODE * at.nodes, []
    for load_aware in (True, False):
        how = f"with{'' if load_aware else 'out'} the extender, {'' if limited else 'not '}limited"
        at.rig.say(f"cluster: placing {pods} pods {how}")
        found.append(at.place(pods, load_aware=load_aware, limited=limited))
        at.rig.say(f"cluster: {len(found[-1].bound)} bound, {found[-1].per_s:.0f} a second")
    return found[0], found[1]


def _ratio(both: tuple[Placed, Placed]) -> float:
    return both[0].per_s / both[1].per_s if both[1].per_s else 0.0


def _rates(both: tuple[Placed, Placed]) -> dict[str, float]:
    return {"with_per_s": both[0].per_s, "without_per_s": both[1].per_s}


def _said(both: tuple[Placed, Placed], at: Colony) -> str:
    with_it, without = both
    bound = f"{len(with_it.bound)} and {len(without.bound)} of {PODS_PER_NODE * at.nodes} bound"
    return f"{_ratio(both):.2f}: {with_it.per_s:.0f} against {without.per_s:.0f}; {bound}"


def over_line_s(placed: Placed, nodes: int) -> int:
    """Node-seconds in which services and the batch pods that were placed use more than the line, for one tide after."""
    pods = Counter(node for node, _ in placed.bound.values())
    begin_s = max((at_ms for _, at_ms in placed.bound.values()), default=0) // 1_000
    use_milli = int(ASKED["kubernetes.io/batch-cpu"]) * BATCH_USE_PART
    return sum(
        load_milli(number, at_s * 1_000) + pods[name_of(number)] * use_milli > LINE_PART * CPU_MILLI
        for number in range(nodes)
        for at_s in range(begin_s, begin_s + AFTER_S)
    )


def _writes(at: Colony, whole_s: float) -> list[Row]:
    """What the bridge wrote, by kind, since it began."""
    rows = []
    for kind, most in WRITES_A_MINUTE.items():
        count = at.bridge.labelled("slacktide_bridge_writes_total", kind=kind)
        minutes = whole_s / 60
        allowed = most * minutes + SAVED[kind]
        each = count / at.nodes
        said = f"{each:.2f} a node in {minutes:.1f} min ({each / minutes:.2f} a minute); {allowed:.2f} are allowed"
        rows.append(judged(f"API writes: {kind}", f"<= {most} a node and minute, {SAVED[kind]} saved", said,
                           met=each <= allowed, n=round(count), each=each, minutes=minutes))  # fmt: skip
    return rows


def _costs(at: Colony) -> list[Row]:
    said = ", ".join(f"{name} {pct:.0f}% {mb:.0f} MB" for name, (pct, mb) in at.meter.told().items())
    if warned := at.warnings():
        at.rig.say(f"cluster: first warnings of each part:\n{warned}")
    return [told("CPU (of a core) and memory of each process", said, costs=at.meter.told(), warned=warned)]
