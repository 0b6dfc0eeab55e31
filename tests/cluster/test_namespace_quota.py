"""A namespace's quota on batch, mid and free resources, and free pods, at a real API server with the webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from testbed.cluster.api_server import ApiServer, Json, RefusedError
from testbed.cluster.webhook import COLOCATED, Webhook
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster

AMOUNTS = {"cpu": "2", "memory": "1Gi"}
SPEC: Json = {
    "containers": [{"name": "main", "image": "x", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}],
    "restartPolicy": "Never",
}
FREE_PROFILE = """\
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: free-profile
spec:
  selector:
    matchLabels:
      app-type: free
  qosClass: BE
  priorityClassName: koord-free
"""
POLICY = "/api/v1/namespaces/koordinator-system/configmaps"
NAME = "slo-controller-config"


@pytest.fixture
def server(admitting: ApiServer, webhook: Webhook) -> ApiServer:
    assert webhook.process.running
    return admitting


@pytest.fixture
def sells_free(server: ApiServer) -> Iterator[None]:
    """The policy enables the class, and a profile is for its pods."""
    server.apply(FREE_PROFILE)
    enabled = {"colocation-config": json.dumps({"enable": True, "freeClassEnable": True})}
    server.post(POLICY, {"metadata": {"name": NAME}, "data": enabled})
    yield
    server.delete(f"{POLICY}/{NAME}")
    server.delete("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/free-profile")


def bounded(server: ApiServer, **annotations: str) -> str:
    namespace = server.namespace("quota", COLOCATED)
    body = {f"quota.slacktide.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    server.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": body}})
    return namespace


def create(server: ApiServer, namespace: str, name: str, kind: str = "batch") -> Json:
    return server.pod(namespace, name, labels={"app-type": kind}, spec=SPEC)


def test_pods_fit_up_to_the_bound_of_their_namespace(server: ApiServer) -> None:
    namespace = bounded(server, batch_cpu="4000")
    create(server, namespace, "one")
    create(server, namespace, "two")

    with pytest.raises(RefusedError, match=r"requested kubernetes\.io/batch-cpu=2000, used 4000, limited to 4000"):
        create(server, namespace, "three")
    server.delete(f"/api/v1/namespaces/{namespace}/pods/one")
    create(server, namespace, "three")
    create(server, server.namespace("other", COLOCATED), "elsewhere")


def test_pods_created_at_once_do_not_exceed_it(server: ApiServer) -> None:
    namespace = bounded(server, batch_cpu="6000")

    def tried(number: int) -> bool:
        try:
            create(server, namespace, f"p{number}")
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(tried, range(12))) == 3


@pytest.mark.usefixtures("sells_free")
def test_a_free_pod_is_translated_and_has_a_quota_of_its_own(server: ApiServer) -> None:
    namespace = bounded(server, free_memory="1Gi", batch_cpu="0")
    probes = server.namespace("probe")
    names = (f"probe-{number}" for number in range(100))
    eventually(lambda: "kubernetes.io/free-cpu" in str(create(server, probes, next(names), "free")["spec"]))
    pod = create(server, namespace, "free", "free")
    resources: dict[str, Any] = pod["spec"]["containers"][0]["resources"]

    assert resources["requests"] == {"kubernetes.io/free-cpu": "2k", "kubernetes.io/free-memory": "1Gi"}
    assert pod["spec"]["priority"] == 3000
    with pytest.raises(RefusedError, match="free-memory=1073741824, used 1073741824"):
        create(server, namespace, "more", "free")


def test_a_bound_that_is_no_amount_refuses_and_names_itself(server: ApiServer) -> None:
    namespace = bounded(server, batch_cpu="much")

    with pytest.raises(RefusedError, match=r"annotation quota\.slacktide\.io/batch-cpu"):
        create(server, namespace, "one")


def test_a_pod_with_more_text_than_anybody_reads_does_not_pass_over_the_bound(server: ApiServer) -> None:
    """The API server writes each ``<`` with six characters, and would ignore an error of the webhook."""
    namespace = bounded(server, batch_cpu="0")
    text = {"name": "TEXT", "value": "<" * 1_450_000}
    spec = {**SPEC, "containers": [{**SPEC["containers"][0], "env": [text]}]}

    with pytest.raises(RefusedError, match=r"beyond what is read in time: more than 2097152 bytes"):
        server.pod(namespace, "large", labels={"app-type": "batch"}, spec=spec)


def test_the_name_of_a_refused_pod_is_not_longer_than_a_name(server: ApiServer, webhook: Webhook) -> None:
    namespace = bounded(server, batch_cpu="0")

    with pytest.raises(RefusedError, match="exceeded quota of namespace"):
        create(server, namespace, "n" * 400_000)
    lines = webhook.process.log.read_text().splitlines()
    assert [line for line in lines if f"{namespace}/nnn" in line]
    assert max(map(len, lines)) < 4_000
