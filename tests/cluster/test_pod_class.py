"""What decides how a pod may be held back or evicted is fixed at its creation, whoever asks for a change."""

from typing import Any

import pytest

from testbed.cluster.api_server import ApiServer, RefusedError

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
QOS, CLASS, SUB = "koordinator.sh/qosClass", "koordinator.sh/priority-class", "koordinator.sh/priority"
POLICY = "koordinator.sh/eviction-policy"
LABELS = "the labels koordinator.sh/qosClass, koordinator.sh/priority-class and koordinator.sh/priority of a pod cannot"
BATCH = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
NEEDS_BE = "must have the label koordinator.sh/qosClass=BE"


@pytest.fixture(scope="module")
def namespace(applied: ApiServer) -> str:
    return applied.namespace()


def spec(requests: Json, kind: str = "containers") -> Json:
    one = {"name": "work", "image": "localhost/busybox:1", "resources": {"requests": requests, "limits": requests}}
    return {kind: [one]}


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {QOS: "LS"}}, id="QoS"),
        pytest.param({"labels": {QOS: None}}, id="QoS gone"),
        pytest.param({"labels": {CLASS: "koord-prod"}}, id="priority class"),
        pytest.param({"labels": {CLASS: None}}, id="priority class gone"),
        pytest.param({"labels": {SUB: "9999"}}, id="new sub-priority"),
    ],
)
def test_a_pods_class_cannot_be_changed(applied: ApiServer, namespace: str, metadata: Json, subresource: str) -> None:
    name = f"job-{abs(hash((str(metadata), subresource)))}"
    applied.pod(namespace, name, labels={QOS: "BE", CLASS: "koord-batch"})
    with pytest.raises(RefusedError, match=LABELS):
        applied.patch(f"/api/v1/namespaces/{namespace}/pods/{name}{subresource}", {"metadata": metadata})


def test_a_pod_without_a_class_cannot_be_given_one(applied: ApiServer, namespace: str) -> None:
    """So that nobody makes a service evictable."""
    applied.pod(namespace, "service")
    with pytest.raises(RefusedError, match=LABELS):
        applied.patch(f"/api/v1/namespaces/{namespace}/pods/service", {"metadata": {"labels": {QOS: "BE"}}})


@pytest.mark.parametrize("value", ["[]", '["BEMemoryEvict"]'])
def test_a_batch_pod_cannot_opt_out_of_eviction_later(applied: ApiServer, namespace: str, value: str) -> None:
    name = f"opt-out-{len(value)}"
    applied.pod(namespace, name, labels={QOS: "BE"})
    with pytest.raises(RefusedError, match="eviction-policy of a pod of QoS class BE cannot be changed"):
        applied.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"annotations": {POLICY: value}}})


def test_everything_else_of_a_pod_changes_as_before(applied: ApiServer, namespace: str) -> None:
    applied.pod(namespace, "free", labels={QOS: "BE", "app": "a"}, annotations={POLICY: '["BEMemoryEvict"]'})
    path = f"/api/v1/namespaces/{namespace}/pods/free"
    applied.pod(namespace, "shop", labels={QOS: "LS"})

    changed = applied.patch(path, {"metadata": {"labels": {"app": "b"}, "annotations": {"note": "c"}}})
    running = applied.patch(f"{path}/status", {"status": {"phase": "Running"}})
    request = {"metadata": {"annotations": {POLICY: "[]"}, "labels": {"koordinator.sh/eviction-enabled": "true"}}}

    assert changed["metadata"]["labels"] == {QOS: "BE", "app": "b"}
    assert running["status"]["phase"] == "Running"
    assert applied.patch(f"/api/v1/namespaces/{namespace}/pods/shop", request)["metadata"]["annotations"] == {
        POLICY: "[]"
    }


@pytest.mark.parametrize("labels", [{}, {QOS: "LS"}, {QOS: "LSR"}, {QOS: "SYSTEM"}, {QOS: "be"}], ids=str)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_only_a_batch_pod_gets_batch_resources(applied: ApiServer, namespace: str, labels: Json, kind: str) -> None:
    with pytest.raises(RefusedError, match=NEEDS_BE):
        applied.pod(namespace, "taker", labels=labels, spec=spec(BATCH, kind))
    free = {name.replace("batch", "free"): amount for name, amount in BATCH.items()}
    with pytest.raises(RefusedError, match=NEEDS_BE):
        applied.pod(namespace, "taker", labels=labels, spec=spec(free, kind))


def test_a_batch_pod_gets_batch_resources_and_others_all_else(applied: ApiServer, namespace: str) -> None:
    applied.pod(namespace, "batch", labels={QOS: "BE"}, spec=spec(BATCH))
    applied.pod(namespace, "nothing", labels={QOS: "LS"}, spec=spec({"kubernetes.io/batch-cpu": "0"}))
    applied.pod(namespace, "mid", labels={QOS: "LS"}, spec=spec({"kubernetes.io/mid-cpu": "1000"}))
    assert applied.pod(namespace, "plain", spec=spec({"cpu": "1"}))
