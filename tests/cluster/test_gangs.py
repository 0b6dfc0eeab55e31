"""Gangs with a real kube-scheduler, the extender under its own account, a real API server and a broker."""

import asyncio
import json
import logging
import random
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.topics import GANG_PLAN
from slacktide.streams.decisions.gang.membership import GATE
from testbed.brokers import EmbeddedBroker, free_port
from testbed.cluster.api_server import Json, RefusedError
from testbed.cluster.manifests import MANIFESTS
from testbed.cluster.programs import Program
from testbed.cluster.scheduler_rig import ACCOUNT, SchedulerRig, Scheduling, scheduling
from testbed.cluster.webhook import Webhook

log = logging.getLogger(__name__)
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


@pytest.mark.nightly
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


async def test_without_the_extender_none_of_fifty_gated_pods_starts_and_a_new_one_carries_on(rig: SchedulerRig) -> None:
    for _ in range(2):
        rig.node(batch=6_000)
    extender = await rig.extender(gangs=True)
    await extender.kill()
    names = await rig.gang("g", 50, cpu="100")
    others = await rig.pods(2)
    await until(rig, lambda found: set(others) <= set(found))
    assert not set(names) & set(await bound(rig))
    await rig.extender(gangs=True)
    assert set(names) <= set(await until(rig, lambda found: len(found) == 52))


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


async def planned(rig: SchedulerRig, first: str, nodes: list[str]) -> GangPlan:
    """Ask for a pod as a kube-scheduler does that is stopped afterwards; the plan of its gang."""
    pod = await asyncio.to_thread(rig.cluster.get, f"/api/v1/namespaces/{rig.namespace}/pods/{first}")
    question = json.dumps({"Pod": pod, "NodeNames": nodes}).encode()

    def ask() -> Json:
        with urllib.request.urlopen(f"{rig.url}/filter", data=question, timeout=60) as answer:
            return json.load(answer)

    async with asyncio.timeout(60):
        while not (await asyncio.to_thread(ask))["NodeNames"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.2)
    return next(one for one in reversed(await plans(rig)) if one.places)


async def taint(rig: SchedulerRig, node: str, *, on: bool) -> None:
    taints = [{"key": "test", "effect": "NoSchedule"}] if on else None
    await asyncio.to_thread(rig.cluster.patch, f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})


@pytest.fixture
def stopped(at: Scheduling) -> Iterator[None]:
    """No kube-scheduler runs until the test starts one."""
    at.program.stop()
    yield
    if not at.program.running:
        at.start()


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("deleted", [True, False])
async def test_a_plan_whose_node_is_lost_before_its_pods_are_bound_moves_them_to_others(
    at: Scheduling, rig: SchedulerRig, *, deleted: bool
) -> None:
    nodes = [rig.node(batch=2_000) for _ in range(3)]
    await rig.extender(gangs=True)
    names = await rig.gang("g", 4, cpu="1000", gated=False)
    plan = await planned(rig, names[0], nodes)
    lost = next(place.node for place in plan.places if place.name != names[0])
    if deleted:
        await asyncio.to_thread(rig.cluster.delete, f"/api/v1/nodes/{lost}")
        rig.forget(lost)
    else:
        await taint(rig, lost, on=True)
    await asyncio.to_thread(at.start)
    found = await until(rig, lambda found: len(found) == 4)
    assert set(found) == set(names)
    assert lost not in found.values()


@pytest.mark.usefixtures("stopped")
async def test_a_plan_without_room_beside_its_lost_node_ends_and_holds_nothing(
    at: Scheduling, rig: SchedulerRig
) -> None:
    nodes = [rig.node(batch=2_000) for _ in range(2)]
    await rig.extender(gangs=True)
    names = await rig.gang("g", 4, cpu="1000", gated=False)
    await planned(rig, names[0], nodes)
    await taint(rig, nodes[1], on=True)
    await asyncio.to_thread(at.start)
    await until(rig, lambda _: "gang_no_room: places for 2 of 4" in message(rig, names))
    assert not await bound(rig)
    others = await rig.pods(2, cpu="1000")
    assert set(await until(rig, lambda found: len(found) == 2)) == set(others)
    await delete(rig, others)
    await taint(rig, nodes[1], on=False)
    assert set(await until(rig, lambda found: len(found) == 4)) == set(names)


BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/slacktide-scheduler-gangs"


async def allow(at: Scheduling, *, patch: bool) -> None:
    """Let the scheduler remove gates, or not; return once the API server knows."""
    if patch:
        await asyncio.to_thread(at.cluster.apply, MANIFESTS / "components/gangs/rbac.yaml")
    else:
        await asyncio.to_thread(at.cluster.delete, BINDING)
    user = f"system:serviceaccount:slacktide-system:{ACCOUNT}"
    review = {"spec": {"user": user, "resourceAttributes": {"verb": "patch", "resource": "pods", "namespace": "any"}}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    await asyncio.to_thread(
        at.cluster.wait, lambda: at.cluster.post(path, review)["status"]["allowed"] == patch, "its rights changed"
    )


@pytest.mark.nightly
async def test_a_pair_that_is_killed_between_a_plan_and_its_release_is_followed_by_the_other(
    at: Scheduling, rig: SchedulerRig
) -> None:
    """The first pair may not remove gates, so it gets no further than the plan."""
    rig.node(batch=6_000)
    second, port = Program("kube-scheduler", at.cluster.folder / "second-scheduler.log"), free_port()
    first = await rig.extender(gangs=True)
    await rig.extender(gangs=True, port=port)

    def edit(config: Json) -> None:
        for extender in config["extenders"]:
            extender["urlPrefix"] = f"http://127.0.0.1:{port}"
        config["leaderElection"] |= {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"}

    await asyncio.to_thread(at.start, second, edit)
    try:
        await allow(at, patch=False)
        gated = await rig.gang("g", 5, least=6)
        await rig.gang("g", 1, least=6, gated=False)
        async with asyncio.timeout(60):
            while not any(one.places for one in await plans(rig)):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        await first.kill()
        at.program.stop(signal.SIGKILL)
        assert not set(gated) & set(await bound(rig))
        begun_s = time.monotonic()
        await allow(at, patch=True)
        await asyncio.to_thread(
            at.cluster.wait, lambda: not any(one["spec"].get("schedulingGates") for one in rig.listed()), "gates fall"
        )
        released_s = time.monotonic()
        await until(rig, lambda found: len(found) == 6)
        bound_s = time.monotonic()
        log.info("gates fell %.1f s after the kill, all were bound %.1f s", released_s - begun_s, bound_s - begun_s)
    finally:
        await allow(at, patch=True)
        await asyncio.to_thread(second.stop)
        if not at.program.running:
            await asyncio.to_thread(at.start)


OTHER, GATES = {"name": "example.com/quota"}, "/spec/schedulingGates"
REFUSED = [
    pytest.param("/spec/containers/0/image", "other", "change images", id="image"),
    pytest.param("/metadata/labels/app", "other", "change labels", id="label"),
    pytest.param("/metadata/annotations/a", "b", "change labels", id="annotation"),
    pytest.param("/metadata/finalizers", ["example.com/kept"], "other metadata", id="finalizer"),
    pytest.param("/spec/nodeSelector", {"a": "b"}, "where or for how long", id="node selector"),
    pytest.param("/spec/activeDeadlineSeconds", 1, "where or for how long", id="deadline"),
    pytest.param(GATES, [{"name": GATE}], "only the gate", id="another gate"),
    pytest.param(GATES, [], "only the gate", id="both gates"),
]


@pytest.fixture(scope="module")
def gated(at: Scheduling, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of a pod with a gate of its own, to which the webhook added that of gangs."""
    configurations = MANIFESTS / "base/webhook/configurations.yaml"
    webhook = Webhook(at.cluster, tmp_path_factory.mktemp("webhook"), options=["--gangs"])
    webhook.start()
    at.cluster.apply(configurations)
    space, key = at.cluster.namespace("batch"), "gang.scheduling.koordinator.sh/"
    spec = {"schedulerName": "koord-scheduler", "schedulingGates": [OTHER]}
    given = {"labels": {"app": "g"}, "annotations": {f"{key}name": "g", f"{key}min-available": "2"}, "spec": spec}
    made: list[Json] = []

    def is_gated() -> bool:
        made.append(at.cluster.pod(space, f"g-{len(made)}", **given))
        return {"name": GATE} in made[-1]["spec"]["schedulingGates"]

    try:
        at.cluster.wait(is_gated, "the API server asks the webhook")
        yield f"/api/v1/namespaces/{space}/pods/{made[-1]['metadata']['name']}"
    finally:
        at.cluster.delete("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/slacktide")
        webhook.stop()
        for one in made:
            at.cluster.delete(f"/api/v1/namespaces/{space}/pods/{one['metadata']['name']}")


def patched(at: Scheduling, pod: str, path: str, value: object) -> Json:
    """Remove the gate of gangs as the scheduler, and change something else with it."""
    changes = {GATES: [OTHER]} | {path: value}
    body: Any = [{"op": "add", "path": path, "value": value} for path, value in changes.items()]
    return at.cluster.request("PATCH", pod, body, token=at.account.token, kind="application/json-patch+json")


@pytest.mark.parametrize(("path", "value", "why"), REFUSED)
def test_the_scheduler_may_not_change_a_gated_pod(
    at: Scheduling, gated: str, path: str, value: object, why: str
) -> None:
    with pytest.raises(RefusedError, match=why) as refused:
        patched(at, gated, path, value)
    assert refused.value.status == 403


def test_the_scheduler_removes_the_gate_that_the_webhook_added_and_keeps_the_other(at: Scheduling, gated: str) -> None:
    assert at.cluster.get(gated)["spec"]["schedulingGates"] == [OTHER, {"name": GATE}]
    assert patched(at, gated, GATES, [OTHER])["spec"]["schedulingGates"] == [OTHER]


async def told(rig: SchedulerRig) -> dict[str, str]:
    """The last words for each reason in the topic."""
    return {one.reason: one.why for one in await plans(rig)}


async def plans(rig: SchedulerRig) -> list[GangPlan]:
    """All records of the topic that have a value."""
    return [decode(one.value, GangPlan) for one in await rig.records(GANG_PLAN.name) if one.value is not None]
