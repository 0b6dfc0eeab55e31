"""Gangs with a real kube-scheduler, the extender under its own account, a real API server and a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.topics import GANG_PLAN
from testbed.brokers import EmbeddedBroker
from testbed.cluster.scheduler_rig import SchedulerRig, Scheduling, scheduling

pytestmark = pytest.mark.cluster
LABEL = "pod-group.scheduling.sigs.k8s.io"
RACES = 5
ARRIVALS = 30


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduling]:
    with scheduling(tmp_path_factory.mktemp("applied"), "gangs", "gang-crds") as found:
        yield found


@pytest.fixture
async def rig(at: Scheduling, embedded_broker: EmbeddedBroker) -> AsyncIterator[SchedulerRig]:
    embedded_broker.apply_topics(3)
    async with SchedulerRig(at, embedded_broker.bootstrap).streaming() as rig:
        yield rig


async def until(rig: SchedulerRig, holds: Callable[[dict[str, str]], bool], seconds: float = 60) -> dict[str, str]:
    """Node by pod, once this is so."""
    async with asyncio.timeout(seconds):
        while not holds(found := await bound(rig)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.2)
        return found


async def bound(rig: SchedulerRig) -> dict[str, str]:
    listed = await asyncio.to_thread(rig.listed)
    return {one["metadata"]["name"]: node for one in listed if (node := one["spec"].get("nodeName"))}


async def delete(rig: SchedulerRig, names: list[str]) -> None:
    for name in names:
        await asyncio.to_thread(rig.cluster.delete, f"/api/v1/namespaces/{rig.namespace}/pods/{name}")


def message(rig: SchedulerRig, names: list[str]) -> str:
    """What the kube-scheduler says of those that it sees."""
    listed = [one for one in rig.listed() if one["metadata"]["name"] in names]
    return " ".join(condition.get("message", "") for one in listed for condition in one["status"].get("conditions", []))


async def test_of_two_gangs_with_room_for_one_exactly_one_starts_and_the_other_says_why(rig: SchedulerRig) -> None:
    for _ in range(3):
        rig.node(batch=2_000)
    await rig.extender(gangs=True)
    for race in range(RACES):
        one, other = await asyncio.gather(
            rig.gang(f"a{race}", 4, cpu="1000"), rig.gang(f"b{race}", 4, cpu="1000", gated=race % 2 == 0)
        )
        first = await until(rig, lambda found: len(found) == 4)
        assert set(first) in (set(one), set(other))
        waiting = other if set(first) == set(one) else one
        await until(rig, lambda _, waiting=waiting: "gang_no_room: places for 2 of 4" in message(rig, waiting))  # type: ignore[misc]
        assert set(await bound(rig)) == set(first)
        await delete(rig, [*first])
        assert set(await until(rig, lambda found: len(found) == 4)) == set(waiting)
        await delete(rig, waiting)


async def test_random_arrivals_leave_no_gang_half_started(rig: SchedulerRig) -> None:
    for _ in range(4):
        rig.node(batch=4_000)
    await rig.extender(gangs=True)
    draw = random.Random(46)
    gangs: dict[str, list[str]] = {}
    for number in range(ARRIVALS):
        name, size = f"g{number}", draw.randint(1, 6)
        gangs[name] = await rig.gang(name, size, cpu=draw.choice(["500", "1000"]), gated=draw.random() < 0.8)
        if number % 3 == 2:  # one that runs ends
            running = [one for one, pods in gangs.items() if pods and set(pods) <= set(await bound(rig))]
            if running:
                await delete(rig, gangs.pop(draw.choice(running)))
    while gangs:
        found = await until(rig, lambda found: any(pods and set(pods) <= set(found) for pods in gangs.values()))
        running = [name for name, pods in gangs.items() if set(pods) <= set(found)]
        for name in running:
            await delete(rig, gangs.pop(name))
    assert not await bound(rig)


async def test_without_the_extender_no_gated_pod_starts_and_a_new_one_carries_on(rig: SchedulerRig) -> None:
    for _ in range(2):
        rig.node(batch=6_000)
    extender = await rig.extender(gangs=True)
    await extender.stop()
    names = await rig.gang("g", 10, cpu="500")
    others = await rig.pods(2)
    await until(rig, lambda found: set(others) <= set(found))
    assert not set(names) & set(await bound(rig))
    await rig.extender(gangs=True)
    assert set(names) <= set(await until(rig, lambda found: len(found) == 12))


async def test_a_pod_group_decides_how_many_start_together(rig: SchedulerRig) -> None:
    rig.node(batch=6_000)
    await rig.extender(gangs=True)
    gates = {"schedulingGates": [{"name": "slacktide.io/gang"}]}
    names = await rig.pods(2, named="pg", labels={LABEL: "pg"}, **gates)
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "pg", "namespace": rig.namespace}, "spec": {"minMember": 3},
    }  # fmt: skip
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{rig.namespace}/podgroups"
    await asyncio.to_thread(rig.cluster.post, path, group)
    async with asyncio.timeout(60):
        while "2 of 3 pods of gang" not in (await told(rig)).get("gang_forming", ""):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.2)
    assert not await bound(rig)
    names += await rig.pods(1, named="pg", labels={LABEL: "pg"}, **gates)
    assert set(await until(rig, lambda found: len(found) == 3)) == set(names)


async def told(rig: SchedulerRig) -> dict[str, str]:
    """The last words for each reason in the topic."""
    plans = [decode(one.value, GangPlan) for one in await rig.records(GANG_PLAN.name)]
    return {one.reason: one.why for one in plans}
