"""Reservations with a real kube-scheduler, the extender and the bridge's part under their accounts, and a broker."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.reservation.keeper import Keeper
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.schemas.connection import Cluster
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, Percents, Thresholds
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer as Served
from testbed.cluster.api_server import Json, RefusedError
from testbed.cluster.identity import access_of
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.scheduler_rig import SchedulerRig, Scheduling, scheduling

pytestmark = pytest.mark.cluster
PATH = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
OWNERS = 5
UNLIMITED = PlacementArgs(load=LoadAwareArgs(thresholds=Thresholds(usage=Percents(0, 0))))
NATIVE = {"requests": {"cpu": "1", "memory": "1Gi"}}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduling]:
    with scheduling(tmp_path_factory.mktemp("applied"), "reservations", "reservation-crds") as found:
        yield found


@pytest.fixture
async def rig(at: Scheduling, embedded_broker: EmbeddedBroker) -> AsyncIterator[SchedulerRig]:
    embedded_broker.apply_topics(3)
    async with SchedulerRig(at, embedded_broker.bootstrap).streaming() as rig:
        yield rig
        await asyncio.to_thread(_remove_all, rig.cluster)


def _remove_all(cluster: Served) -> None:
    for one in cluster.get(PATH)["items"]:
        cluster.delete(f"{PATH}/{one['metadata']['name']}")
    for pod in cluster.get("/api/v1/namespaces/default/pods")["items"]:
        cluster.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")


class Kept:
    """The bridge's part at work."""

    def __init__(self, rig: SchedulerRig) -> None:
        account = rig.cluster.account(SYSTEM, "slacktide-bridge")
        self._access, self._bootstrap = access_of(account.kubeconfig), rig.bootstrap
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with ApiServer(self._access, name="slacktide-bridge") as api:
            await Keeper(Cluster(self._bootstrap), "registry.k8s.io/pause:3.10", SystemClock()).run(api)

    async def kill(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


@pytest.fixture
async def kept(rig: SchedulerRig) -> AsyncIterator[Kept]:
    one, ending = Kept(rig), asyncio.create_task(_end_pods(rig.cluster))
    yield one
    await one.kill()
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)


async def _end_pods(cluster: Served) -> None:
    """End deleted placeholders, as a kubelet does."""
    while True:
        for pod in (await asyncio.to_thread(cluster.get, "/api/v1/namespaces/default/pods"))["items"]:
            if pod["metadata"].get("deletionTimestamp"):
                await asyncio.to_thread(cluster.delete, f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
        await asyncio.sleep(0.1)


async def reserve(rig: SchedulerRig, name: str, owner: str, **spec: Any) -> None:
    """Reserve one CPU for a pod with this label."""
    container = {"name": "main", "image": "none", "resources": NATIVE}
    template = {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}}
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": template, "owners": [{"labelSelector": {"matchLabels": {"app": owner}}}], **spec},
    }
    await asyncio.to_thread(rig.cluster.post, PATH, body)


async def owner(rig: SchedulerRig, app: str, **given: Any) -> str:
    container = {"name": "main", "image": "none", "resources": NATIVE}
    [name] = await rig.pods(
        1, named=app, labels={"app": app, "koordinator.sh/qosClass": "LS"}, containers=[container],
        priorityClassName="koord-prod", **given,
    )  # fmt: skip
    return name


async def until(read: Callable[[], Json], holds: Callable[[Json], bool], seconds: float = 60) -> Json:
    """What is read, once this is so."""
    found: Json = {}
    try:
        async with asyncio.timeout(seconds):
            while not holds(found := await asyncio.to_thread(read)):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"after {seconds:g} s: {found}")
    return found


def phase(rig: SchedulerRig, name: str, wanted: str) -> Any:
    """Wait until a Reservation is in this phase."""
    return until(lambda: rig.cluster.get(f"{PATH}/{name}"), lambda one: one.get("status", {}).get("phase") == wanted)


def placed(rig: SchedulerRig, name: str) -> Any:
    """Wait until a pod is bound."""
    path = f"/api/v1/namespaces/{rig.namespace}/pods/{name}"
    return until(lambda: rig.cluster.get(path), lambda one: bool(one["spec"].get("nodeName")))


async def test_its_owner_gets_the_room_in_a_cluster_that_others_have_filled(rig: SchedulerRig, kept: Kept) -> None:
    node = rig.node(cpu=8, use=100)
    await rig.extender(reservations=True, args=UNLIMITED)
    for number in range(OWNERS):
        await reserve(rig, f"r{number}", f"app{number}")
    for number in range(OWNERS):
        assert (await phase(rig, f"r{number}", "Available"))["status"]["nodeName"] == node
    filled = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": str(8 - OWNERS)}}}]}
    await asyncio.to_thread(rig.cluster.pod, rig.namespace, "full", node=node, spec=filled)
    names = [await owner(rig, f"app{number}") for number in range(OWNERS)]
    for number, name in enumerate(names):
        pod = await placed(rig, name)
        mark = pod["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-allocated"]
        assert json.loads(mark)["name"] == f"r{number}"
        done = await phase(rig, f"r{number}", "Succeeded")
        assert [one["name"] for one in done["status"]["currentOwners"]] == [name]
    left = rig.cluster.get("/api/v1/namespaces/default/pods")["items"]
    assert not [one for one in left if not one["metadata"].get("deletionTimestamp")]


async def test_the_room_of_a_reservation_is_not_for_others(rig: SchedulerRig, kept: Kept) -> None:
    await rig.describe(rig.node(cpu=2, use=100), cpu=2)
    await rig.extender(reservations=True, args=UNLIMITED)
    await reserve(rig, "r", "mine")
    await phase(rig, "r", "Available")
    first, second = await owner(rig, "other"), await owner(rig, "other")
    await until(lambda: {"bound": list(rig.placed().elements())}, lambda one: len(one["bound"]) == 1)
    mine = await owner(rig, "mine")
    assert (await placed(rig, mine))["spec"]["nodeName"]
    waiting = [
        name for name in (first, second)
        if not rig.cluster.get(f"/api/v1/namespaces/{rig.namespace}/pods/{name}")["spec"].get("nodeName")
    ]  # fmt: skip
    assert len(waiting) == 1


async def test_what_is_not_supported_is_named_and_holds_nothing(rig: SchedulerRig, kept: Kept) -> None:
    rig.node(cpu=8, use=100)
    await rig.extender(reservations=True, args=UNLIMITED)
    await reserve(rig, "many", "mine", allocateOnce=False)
    found = await until(
        lambda: rig.cluster.get(f"{PATH}/many"), lambda one: bool(one.get("status", {}).get("conditions"))
    )
    [condition] = found["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unsupported")
    assert condition["message"].startswith("spec.allocateOnce: false")
    assert not rig.cluster.get("/api/v1/namespaces/default/pods")["items"]


async def test_an_expired_one_gives_its_room_back(rig: SchedulerRig, kept: Kept) -> None:
    rig.node(cpu=2, use=100)
    await rig.extender(reservations=True, args=UNLIMITED)
    await reserve(rig, "short", "mine", ttl="2s")
    await phase(rig, "short", "Failed")
    others = [await owner(rig, "other") for _ in range(2)]
    for name in others:
        await placed(rig, name)


async def test_a_new_leader_goes_on_where_the_last_one_was_killed(rig: SchedulerRig, kept: Kept) -> None:
    rig.node(cpu=8, use=100)
    await rig.extender(reservations=True, args=UNLIMITED)
    await reserve(rig, "r", "mine")
    await phase(rig, "r", "Available")
    await kept.kill()
    name = await owner(rig, "mine")
    again = Kept(rig)
    try:
        await placed(rig, name)
        await phase(rig, "r", "Succeeded")
    finally:
        await again.kill()


PLACEHOLDER: Json = {
    "metadata": {"name": "reservation-x", "labels": {"slacktide.io/reservation": "x"}},
    "spec": {"automountServiceAccountToken": False, "containers": [{"name": "pause", "image": "pause"}]},
}


@pytest.mark.parametrize(
    ("metadata", "spec", "why"),
    [
        ({"name": "web"}, {}, "only placeholders"),
        ({"labels": {}}, {}, "only placeholders"),
        ({}, {"hostNetwork": True}, "no volumes, host namespaces or token"),
        ({}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "no volumes, host namespaces or token"),
        ({}, {"automountServiceAccountToken": True}, "no volumes, host namespaces or token"),
    ],
)
def test_the_bridge_may_create_only_placeholders(at: Scheduling, metadata: Json, spec: Json, why: str) -> None:
    pod = {"metadata": PLACEHOLDER["metadata"] | metadata, "spec": PLACEHOLDER["spec"] | spec}
    token = at.cluster.account(SYSTEM, "slacktide-bridge").token
    with pytest.raises(RefusedError, match=why) as refused:
        at.cluster.request("POST", "/api/v1/namespaces/default/pods", pod, token=token)
    assert refused.value.status == 403


def test_the_bridge_may_delete_only_placeholders(at: Scheduling) -> None:
    token, path = at.cluster.account(SYSTEM, "slacktide-bridge").token, "/api/v1/namespaces/default/pods"
    at.cluster.pod("default", "web")
    with pytest.raises(RefusedError, match="only placeholders"):
        at.cluster.request("DELETE", f"{path}/web", token=token)
    at.cluster.request("POST", path, PLACEHOLDER, token=token)
    at.cluster.request("DELETE", f"{path}/reservation-x", token=token)
    at.cluster.delete(f"{path}/web")
