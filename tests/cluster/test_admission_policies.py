"""What the admission policies let the bridge write of a node, and what they ask of an agent's eviction."""

import time
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster.api_server import Account, ApiServer, RefusedError
from testbed.cluster.manifests import SYSTEM, evict_by_load
from testbed.cluster.webhook import Webhook

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
BATCH = {"kubernetes.io/batch-cpu": "4541", "kubernetes.io/batch-memory": "12941597731"}
RESOURCES = "in capacity and allocatable, the bridge may change only kubernetes.io/batch-*, mid-* and free-*"
STATUS = "in a node's status, the bridge may change only capacity and allocatable"
METADATA = "the bridge must not change labels, annotations or other metadata of a node"
MID = {"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "1Gi"}


@pytest.fixture(scope="module")
def bridge(applied: ApiServer) -> Account:
    return applied.account(SYSTEM, "slacktide-bridge")


def status_patch(server: ApiServer, node: str, body: Json, account: Account) -> Json:
    return server.request("PATCH", f"/api/v1/nodes/{node}/status", body, token=account.token)


def test_the_bridge_writes_and_removes_batch_and_mid_resources(applied: ApiServer, bridge: Account) -> None:
    node = applied.node(labels={"zone": "a"}, annotations={"note": "b"})
    both = {"capacity": BATCH | MID, "allocatable": BATCH | MID}
    wrote = status_patch(applied, node, {"status": both}, bridge)
    none = dict.fromkeys(BATCH | MID)
    removed = status_patch(applied, node, {"status": {"capacity": none, "allocatable": none}}, bridge)

    assert both["capacity"].items() <= wrote["status"]["capacity"].items()
    assert both["allocatable"].items() <= wrote["status"]["allocatable"].items()
    assert not (BATCH | MID).keys() & (removed["status"]["capacity"].keys() | removed["status"]["allocatable"].keys())


def test_a_node_with_much_to_compare_is_not_too_costly_for_the_policy(applied: ApiServer, bridge: Account) -> None:
    texts = {f"example.org/key-{number}": "x" * 60 for number in range(300)}
    images = [{"names": [f"image-{number}-{name}" * 5 for name in range(5)]} for number in range(200)]
    resources = {f"example.org/resource-{number}": "1" for number in range(100)}
    status = {"images": images, "capacity": resources, "volumesInUse": [f"volume-{number}" for number in range(200)]}
    node = applied.node(labels=texts, annotations=texts)
    applied.patch(f"/api/v1/nodes/{node}/status", {"status": status})

    assert status_patch(applied, node, {"status": {"capacity": BATCH, "allocatable": BATCH}}, bridge)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param({"status": {"capacity": {"cpu": "64"}}}, RESOURCES, id="CPU"),
        pytest.param({"status": {"allocatable": {"memory": "1Gi"}}}, RESOURCES, id="memory"),
        pytest.param({"status": {"capacity": {"pods": None}}}, RESOURCES, id="no more pods"),
        pytest.param({"status": {"capacity": {"example.org/gpu": "8"}}}, RESOURCES, id="another resource"),
        pytest.param({"status": {"capacity": {"koordinator.sh/batch-cpu": "1"}}}, RESOURCES, id="the older name"),
        pytest.param({"status": {"capacity": {"x.kubernetes.io/batch-cpu": "1"}}}, RESOURCES, id="a longer name"),
        pytest.param(
            {"status": {"capacity": BATCH, "allocatable": BATCH | {"cpu": "7"}}},
            RESOURCES,
            id="one among good ones",
        ),
        pytest.param({"status": {"conditions": []}}, STATUS, id="conditions"),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, STATUS, id="a node made unready"
        ),
        pytest.param({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}, STATUS, id="address"),
        pytest.param({"status": {"phase": "Terminated"}}, STATUS, id="phase"),
        pytest.param({"status": {"images": [{"names": ["a"]}]}}, STATUS, id="images"),
        pytest.param({"metadata": {"labels": {"zone": "b"}}}, METADATA, id="label"),
        pytest.param({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, METADATA, id="new label"),
        pytest.param({"metadata": {"annotations": {"note": None}}}, METADATA, id="annotation gone"),
        pytest.param({"metadata": {"finalizers": ["example.org/kept"]}}, METADATA, id="finalizer"),
    ],
)
def test_the_bridge_writes_nothing_else_of_a_node(applied: ApiServer, bridge: Account, body: Json, why: str) -> None:
    node = applied.node(labels={"zone": "a"}, annotations={"note": "b"})
    with pytest.raises(RefusedError) as refused:
        status_patch(applied, node, body, bridge)

    assert refused.value.status == 403
    assert str(refused.value).endswith(why)


@pytest.mark.parametrize(
    ("resource", "most", "more"),
    [
        ("kubernetes.io/batch-cpu", "8k", "8001"),
        ("kubernetes.io/batch-memory", "16Gi", "1Pi"),
        ("kubernetes.io/mid-cpu", "8000", "1E"),
        ("kubernetes.io/mid-memory", "16Gi", "17179869185"),
    ],
)
def test_the_bridge_sells_no_more_than_the_node_has(
    applied: ApiServer, bridge: Account, resource: str, most: str, more: str
) -> None:
    """The node has 8 CPUs and 16 GiB. What is there already may stay: a node may have become smaller."""
    node = applied.node()
    status_patch(applied, node, {"status": {"capacity": {resource: most}, "allocatable": {resource: most}}}, bridge)
    for part in ("capacity", "allocatable"):
        with pytest.raises(
            RefusedError, match="batch, mid and free CPU and memory must not exceed the node's capacity"
        ):
            status_patch(applied, node, {"status": {part: {resource: more}}}, bridge)
    applied.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": {"cpu": "4", "memory": "8Gi"}}})

    assert status_patch(applied, node, {"status": {"capacity": {"kubernetes.io/batch-x": "1"}}}, bridge)


def test_the_policy_holds_where_a_wider_role_is_given_to_the_bridge(applied: ApiServer, bridge: Account) -> None:
    """A right that somebody adds does not lift it: the node itself stays out of reach."""
    node = applied.node()
    applied.kubectl("create", "clusterrole", "wide", "--verb=*", "--resource=nodes")
    subject = f"--serviceaccount={SYSTEM}:slacktide-bridge"
    applied.kubectl("create", "clusterrolebinding", "wide", "--clusterrole=wide", subject)
    try:
        for method, body in (("PATCH", {"metadata": {"labels": {"a": "b"}}}), ("DELETE", {})):
            with pytest.raises(RefusedError, match="may change only nodes/status of nodes"):
                applied.request(method, f"/api/v1/nodes/{node}", body, token=bridge.token)
    finally:
        applied.kubectl("delete", "clusterrolebinding/wide", "clusterrole/wide")


def test_others_write_a_nodes_status_as_before(applied: ApiServer) -> None:
    node = applied.node()

    assert applied.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": {"example.org/gpu": "8"}}})


class Victim:
    """A best-effort pod on a node, and the node's agent."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self.server, self.namespace = server, namespace
        self.node = server.node()
        agent = f"agent-{self.node}"
        server.pod(SYSTEM, agent, node=self.node, spec={"serviceAccountName": "slacktide-agent"})
        self.bound = server.account(SYSTEM, "slacktide-agent", pod=agent)
        self.unbound = server.account(SYSTEM, "slacktide-agent")
        labels = {"koordinator.sh/qosClass": "BE"}
        self.uid = server.pod(namespace, "victim", node=self.node, labels=labels)["metadata"]["uid"]

    def evict(self, account: Account, uid: str | None) -> str:
        """What the API server says; "" where it evicts."""
        body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "victim"}}
        if uid is not None:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        try:
            path = f"/api/v1/namespaces/{self.namespace}/pods/victim/eviction"
            self.server.request("POST", path, body, token=account.token)
        except RefusedError as refused:
            return str(refused)
        return ""


@pytest.fixture
def victim(applied: ApiServer) -> Victim:
    return Victim(applied, applied.namespace())


def test_an_agents_eviction_names_the_uid(victim: Victim) -> None:
    assert "deleteOptions.preconditions.uid" in victim.evict(victim.bound, None)


def test_the_bridges_eviction_names_the_uid_and_waits_for_the_fence(victim: Victim, bridge: Account) -> None:
    assert 'cannot create resource "pods/eviction"' in victim.evict(bridge, victim.uid), "as it is installed"
    with evict_by_load(victim.server):
        assert "the bridge's eviction must contain the victim's uid" in victim.evict(bridge, None)
        assert "failed calling webhook" in victim.evict(bridge, victim.uid)


def test_an_agents_token_is_bound_to_a_pod_on_a_node(victim: Victim) -> None:
    assert "a token that is bound to its pod" in victim.evict(victim.unbound, victim.uid)


def test_what_the_policy_lets_through_waits_for_the_fence(victim: Victim) -> None:
    """Nobody answers for the fence here: an agent evicts nobody then."""
    told = victim.evict(victim.bound, victim.uid)

    assert "failed calling webhook" in told
    assert "slacktide-webhook" in told


def test_others_evict_as_before_while_the_fence_is_away(victim: Victim) -> None:
    drain = victim.server.account(victim.namespace, "drain")
    victim.server.kubectl("create", "clusterrole", victim.namespace, "--verb=create", "--resource=pods/eviction")
    subject = f"--serviceaccount={victim.namespace}:drain"
    victim.server.kubectl(
        "create", "clusterrolebinding", victim.namespace, f"--clusterrole={victim.namespace}", subject
    )

    assert victim.evict(drain, None) == ""


def test_pods_are_created_while_the_webhook_is_away(applied: ApiServer) -> None:
    namespace = applied.namespace(labels={"koordinator.sh/enable-colocation": "true"})

    assert applied.pod(namespace, "batch", labels={"app-type": "batch"})["metadata"]["uid"]


def test_policy_and_fence_together_let_an_agent_evict_a_best_effort_pod_of_its_node(
    applied: ApiServer, tmp_path: Path
) -> None:
    own, other = Victim(applied, applied.namespace()), Victim(applied, applied.namespace())
    webhook = Webhook(applied, tmp_path)
    webhook.start()
    try:
        until_s = time.monotonic() + 60
        while "failed calling webhook" in (told := own.evict(other.bound, own.uid)):
            assert time.monotonic() < until_s, told
            time.sleep(0.2)

        assert "an agent may only evict pods of its own node" in told
        assert "a token that is bound to its pod" in own.evict(own.unbound, own.uid)
        assert "deleteOptions.preconditions.uid" in own.evict(own.bound, None)
        assert own.evict(own.bound, own.uid) == ""
    finally:
        webhook.stop()


def event(namespace: str, node: str) -> Json:
    """As an agent tells of an eviction."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "victim-", "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "BEMemoryEvict",
        "action": "Evict",
        "message": "62% used, threshold 60%",
        "reportingComponent": "slacktide.io/agent",
        "reportingInstance": node,
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "victim"},
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"reportingComponent": "kubelet"}, id="another part"),
        pytest.param({"reportingInstance": "node-of-another"}, id="another node"),
        pytest.param({"involvedObject": {"kind": "Node", "name": "node-of-another"}}, id="about another node"),
        pytest.param({"involvedObject": {"kind": "Deployment", "name": "victim"}}, id="neither of a pod nor of a node"),
    ],
)
def test_an_agents_event_is_of_a_pod_and_its_own(applied: ApiServer, changes: Json) -> None:
    namespace = applied.namespace()
    victim = Victim(applied, namespace)
    path = f"/api/v1/namespaces/{namespace}/events"
    good = event(namespace, victim.node)
    applied.request("POST", path, good, token=victim.bound.token)

    bad = good | changes
    bad["involvedObject"] = bad["involvedObject"] | {"namespace": namespace}
    for account, body in ((victim.bound, bad), (victim.unbound, good)):
        with pytest.raises(RefusedError, match="an agent's Event must be of version v1, about a pod"):
            applied.request("POST", path, body, token=account.token)
