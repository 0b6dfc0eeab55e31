"""`kubectl delete -k` on a real API server while a bridge sells: Nodes lose what it wrote, and nothing stays held."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Iterator

import pytest
from click.testing import CliRunner

from slacktide.agents.cluster.bridge.removal import FINALIZER
from slacktide.agents.cluster.bridge.writing import NodeSelector
from slacktide.deploy.cli.main import cli
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer, RefusedError
from testbed.cluster.bridge_rig import BridgeRig, until
from testbed.cluster.manifests import MANIFESTS, SYSTEM, applied
from testbed.cluster.streaming_rig import GIB

pytestmark = pytest.mark.cluster
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RIGHTS = (
    f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/slacktide-bridge",
    f"{RBAC}/clusterroles/slacktide-bridge",
    f"{RBAC}/clusterrolebindings/slacktide-bridge",
)
DEPLOYMENT = f"{SYSTEM}/slacktide-bridge"
NOTHING: dict[str, dict[str, str]] = {"capacity": {}, "allocatable": {}}
OFFERED = {"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": str(GIB)}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """An API server of its own: the test deletes what the manifests made."""
    with applied() as api:
        yield api


@pytest.fixture
async def own(server: ApiServer, embedded_broker: EmbeddedBroker) -> AsyncIterator[BridgeRig]:
    embedded_broker.apply_topics(3)
    async with BridgeRig(server, embedded_broker.bootstrap).streaming() as rig:
        rig.say_policy(colocation={"enable": True})
        yield rig


async def sold(rig: BridgeRig) -> str:
    """A node with batch resources that the bridge wrote."""
    node = selling(rig)
    rig.replica("leads", deployment=DEPLOYMENT)
    await until(lambda: rig.resources(node)["allocatable"] == OFFERED)
    return node


async def sold_by_one_that_was_killed(rig: BridgeRig) -> str:
    """The same, by a process that has no time to end."""
    node = selling(rig)
    with rig.command(f"--deployment={DEPLOYMENT}", "--metrics-port=0"):
        await until(lambda: rig.resources(node)["allocatable"] == OFFERED)
    return node


def selling(rig: BridgeRig) -> str:
    """A node of which the stream says what it sells."""
    node = rig.cluster.node(labels={"of": "ours"})
    rig.say(node, cpu=2_000, mem=GIB)
    return node


def held(server: ApiServer) -> list[bool]:
    """Of each right whether the bridge holds it."""
    return [FINALIZER in server.get(path)["metadata"].get("finalizers", []) for path in RIGHTS]


def delete_all(server: ApiServer) -> None:
    server.kubectl("delete", "-k", str(MANIFESTS / "base"), "--wait=false")


async def gone(server: ApiServer) -> None:
    await until(lambda: not any(server.exists(path) for path in RIGHTS), 60)


async def test_all_deleted_at_once_nodes_lose_what_the_bridge_wrote(own: BridgeRig) -> None:
    server, node = own.cluster, await sold(own)
    own.replica("waits", deployment=DEPLOYMENT)
    others = server.node(labels={"of": "others"})
    theirs = {"status": {part: {"kubernetes.io/batch-cpu": "1k"} for part in ("capacity", "allocatable")}}
    server.patch(f"/api/v1/nodes/{others}/status", theirs)
    assert held(server) == [True, True, True]
    delete_all(server)
    await until(lambda: own.resources(node) == NOTHING, 60)
    await gone(server)
    await asyncio.sleep(1)

    assert own.resources(node) == NOTHING, "nobody wrote it again"
    assert own.resources(others)["capacity"] == {"kubernetes.io/batch-cpu": "1k"}, "another writer's"


@pytest.mark.nightly
async def test_a_node_that_left_the_bridge_keeps_what_its_next_owner_may_have_taken_over(own: BridgeRig) -> None:
    """Its fields may still be the bridge's: who writes the same value does not own them."""
    server, stays, left = own.cluster, selling(own), selling(own)
    own.replica("leads", deployment=DEPLOYMENT, node_selector=NodeSelector("of", "ours"))
    await until(lambda: [own.resources(each)["allocatable"] for each in (stays, left)] == [OFFERED] * 2)
    server.patch(f"/api/v1/nodes/{left}", {"metadata": {"labels": {"of": None}}})
    delete_all(server)
    await until(lambda: own.resources(stays) == NOTHING, 60)
    await gone(server)

    assert own.resources(left)["allocatable"] == OFFERED


async def test_a_bridge_that_ends_while_all_is_deleted_removes_them_first(own: BridgeRig) -> None:
    node = await sold(own)
    delete_all(own.cluster)
    await own.end()

    assert own.resources(node) == NOTHING
    await gone(own.cluster)


async def test_a_bridge_that_ends_between_two_deletions_of_helm_removes_them(own: BridgeRig) -> None:
    """Helm deletes the Role of the namespace before what the bridge holds."""
    node = await sold(own)
    own.cluster.delete(f"{RBAC}/namespaces/{SYSTEM}/rolebindings/slacktide-bridge")
    await asyncio.sleep(0.5)
    ending = asyncio.create_task(own.end())
    await asyncio.sleep(1)
    for path in RIGHTS:
        own.cluster.delete(path)
    await ending

    assert own.resources(node) == NOTHING
    await gone(own.cluster)


@pytest.mark.nightly
async def test_rights_that_helm_deletes_while_the_bridge_lets_them_go_are_not_held(own: BridgeRig) -> None:
    """The headers of its patches go out a second before their bodies."""
    node = await sold(own)
    own.cluster.kubectl("delete", "deployment", "slacktide-bridge", "-n", SYSTEM, "--wait=false")
    ending = asyncio.create_task(own.end())
    await until(lambda: own.resources(node) == NOTHING)
    await asyncio.sleep(0.4)
    for path in RIGHTS:
        own.cluster.delete(path)
    await ending

    assert not any(own.cluster.exists(path) for path in RIGHTS)


async def test_a_replica_that_waits_does_it_where_the_leader_was_killed(own: BridgeRig) -> None:
    node = await sold_by_one_that_was_killed(own)
    own.replica("waits", deployment=DEPLOYMENT)
    delete_all(own.cluster)
    await own.end()

    assert own.resources(node) == NOTHING
    await gone(own.cluster)


@pytest.mark.nightly
async def test_a_rollout_and_another_apply_keep_the_resources_and_the_hold(own: BridgeRig) -> None:
    node = await sold(own)
    own.cluster.kubectl("apply", "-k", str(MANIFESTS))
    await own.end()

    assert own.resources(node)["allocatable"] == OFFERED
    assert held(own.cluster) == [True, True, True]


@pytest.mark.nightly
async def test_without_its_deployment_the_bridge_lets_its_rights_go(own: BridgeRig) -> None:
    node = await sold(own)
    own.cluster.kubectl("delete", "deployment", "slacktide-bridge", "-n", SYSTEM, "--wait=false")
    await own.end()

    assert own.resources(node) == NOTHING
    assert held(own.cluster) == [False, False, False]


async def test_a_namespace_that_is_deleted_alone_holds_nothing_and_nodes_lose_what_the_bridge_wrote(
    own: BridgeRig,
) -> None:
    """Its pods end before its accounts are deleted: nothing here deletes them at all."""
    node = await sold(own)
    own.replica("waits", deployment=DEPLOYMENT)
    own.cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")
    await until(lambda: own.resources(node) == NOTHING, 60)
    await own.end()

    assert own.resources(node) == NOTHING, "nobody wrote it again"
    assert held(own.cluster) == [False, False, False]


async def test_where_no_bridge_is_left_the_commands_of_the_docs_let_the_rights_go(own: BridgeRig) -> None:
    node = await sold_by_one_that_was_killed(own)
    delete_all(own.cluster)
    assert held(own.cluster) == [True, True, True]
    asked = ["doctor", "--kubeconfig", str(own.cluster.kubeconfig)]
    told = await asyncio.to_thread(CliRunner().invoke, cli, asked)
    assert "serviceaccount/slacktide-bridge, clusterrole/slacktide-bridge" in " ".join(told.output.split())
    assert "docs/kubernetes.md#remove-it" in told.output
    page = (MANIFESTS.parents[1] / "docs/kubernetes.md").read_text()
    (commands,) = [block for block in re.findall(r"```\w*\n(.*?)```", page, re.DOTALL) if "finalizers" in block]
    for command in commands.strip().splitlines():
        own.cluster.kubectl(*shlex.split(command)[1:])

    assert not any(own.cluster.exists(path) for path in RIGHTS)
    assert own.resources(node)["allocatable"] == OFFERED, "removed by hand, as the docs show"


def test_a_bridge_that_never_sold_holds_nothing(server: ApiServer) -> None:
    delete_all(server)

    assert not any(server.exists(path) for path in RIGHTS)


async def test_of_its_rights_the_bridge_may_write_the_finalizer_alone(own: BridgeRig) -> None:
    server = own.cluster
    token = server.account(SYSTEM, "slacktide-bridge").token
    for path in RIGHTS:
        for body in ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"finalizers": ["example.com/other"]}}):
            with pytest.raises(RefusedError, match="may change only the finalizer"):
                server.request("PATCH", path, body, token=token)
        server.request("PATCH", path, {"metadata": {"finalizers": [FINALIZER]}}, token=token)
    subjects = [
        *server.get(RIGHTS[2])["subjects"],
        {"kind": "ServiceAccount", "name": "default", "namespace": "default"},
    ]
    with pytest.raises(RefusedError, match="may change only the finalizer"):
        server.request("PATCH", RIGHTS[2], {"subjects": subjects}, token=token)
