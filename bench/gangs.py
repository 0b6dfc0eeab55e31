"""What gangs cost: pods bound per second with and without them, and CPU time of one plan."""

import asyncio
import gc
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median

from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged
from testbed.brokers import EmbeddedBroker, running
from testbed.cluster.scheduler_rig import SchedulerRig, scheduling
from testbed.gang_world import GangWorld
from testbed.rungs import lacks_api
from testbed.scheduler_pods import parsed

GANGS, PODS, PAIRS = 5, 100, 3
BRIEF_PODS, BRIEF_PAIRS = 20, 1
WAYS = ("one after the other", "all at once")
"""How gangs are created. All at once, no pod of any can be placed before nearly all pods of all exist."""
SHARE_MIN = 0.8
NODES, BATCH = 10, 60_000
PATIENCE_S, LOOK_S = 120.0, 0.2
PLANNED, PLANS = 1_000, 5
PLAN_S_MAX, BLOCKED_S_MAX = 2.0, 0.3


def measure(rig: Rig) -> list[Row]:
    """Gangs with a real kube-scheduler, and a plan in this process."""
    if (lack := lacks_api()) is not None:
        raise CannotRunError(str(lack))
    with tempfile.TemporaryDirectory() as folder, running(EmbeddedBroker) as broker:
        broker.apply_topics(3)
        with scheduling(Path(folder), "gangs", "gang-crds") as at:
            pairs = asyncio.run(_pairs(rig, SchedulerRig(at, broker.bootstrap), Path(folder)))
    return [*(_placed(rig, way, found) for way, found in pairs.items()), _planned(rig)]


async def _pairs(rig: Rig, world: SchedulerRig, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Pods per second with and without gangs, one after the other, by how they are created."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    pods = BRIEF_PODS if rig.brief else PODS
    async with world.streaming():
        for _ in range(NODES):
            world.node(cpu=64, batch=BATCH)
        with world.command(folder, "--gangs"):
            await _rate(world, pods, WAYS[0], gangs=True)  # warm
            for number, way in product(range(BRIEF_PAIRS if rig.brief else PAIRS), WAYS):
                order = (number % 2 == 0, number % 2 != 0)
                pair = {gangs: await _rate(world, pods, way, gangs=gangs) for gangs in order}
                found[way].append((pair[True], pair[False]))
                rig.say(f"gangs, {way}: {pair[True]:.1f} pods a second with gangs, {pair[False]:.1f} without")
    return found


async def _rate(world: SchedulerRig, pods: int, way: str, *, gangs: bool) -> float:
    """From the first creation to the binding of the last pod; they are deleted afterwards."""
    begun_s = time.monotonic()
    if gangs:
        made = [world.gang(f"g{number}", pods, cpu="100", memory="1Mi") for number in range(GANGS)]
    else:
        made = [world.pods(pods, named=f"p{number}", cpu="100", memory="1Mi") for number in range(GANGS)]
    if way == WAYS[0]:
        for one in made:
            await one
    else:
        await asyncio.gather(*made)
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(world.placed)).total() < GANGS * pods:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(LOOK_S)
    rate = GANGS * pods / (time.monotonic() - begun_s)
    await asyncio.to_thread(world.cluster.delete, f"/api/v1/namespaces/{world.namespace}/pods")
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(world.listed):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(LOOK_S)
    return rate


def _placed(rig: Rig, way: str, pairs: list[tuple[float, float]]) -> Row:
    share = median(with_gangs / without for with_gangs, without in pairs)
    each = ", ".join(f"{with_gangs:.1f} and {without:.1f}" for with_gangs, without in pairs)
    return judged(
        f"{GANGS} gangs of {BRIEF_PODS if rig.brief else PODS} pods, created {way}: pods bound a second",
        f">= {SHARE_MIN:g} of those without gangs",
        f"{share:.2f}: {each}",
        met=share >= SHARE_MIN,
        n=len(pairs),
        pairs=pairs,
    )


def _planned(rig: Rig) -> Row:
    times_s = [_plan_s() for _ in range(PLANS)]
    rig.say(f"gangs: plans took {', '.join(f'{one * 1_000:.0f}' for one in times_s)} ms")
    longest = max(times_s)
    return judged(
        f"plan of {PLANNED:,} pods of one shape on {PLANNED:,} nodes, at a stretch",
        f"<= {PLAN_S_MAX:g} s of CPU, <= {BLOCKED_S_MAX * 1_000:.0f} ms at a stretch",
        f"{median(times_s) * 1_000:.0f} ms, at most {longest * 1_000:.0f} ms",
        met=longest <= BLOCKED_S_MAX,
        n=PLANS,
        times_s=times_s,
    )


def _plan_s() -> float:
    """CPU time of the request that makes the plan, in which nothing else runs, and of reading it back."""
    world = GangWorld(nodes=PLANNED, batch=8_000)
    world.gang("g", PLANNED, memory="64Mi")
    [probe], _ = world.tick()
    lead, pod = world.replicas["a"], parsed(world.pods[probe])
    gc.collect()  # of the world before this one
    begun_s = time.process_time()
    lead.answers.gangs.ask(pod, world.nodes, lead.now)
    lead.catch_up()
    took_s = time.process_time() - begun_s
    assert lead.answers.gangs.count() == {"gang_planned": 1}
    return took_s
