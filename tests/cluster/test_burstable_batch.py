"""Batch pods that would lie outside the best-effort tier are refused where the operator chose so."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.cluster.api_server import ApiServer, RefusedError
from testbed.cluster.manifests import IN_FORCE_S, MANIFESTS

pytestmark = pytest.mark.cluster

BE = {"koordinator.sh/qosClass": "BE"}
BATCH = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
LIMIT_RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]},
}
REFUSED = "because no limit would apply to it"


def spec(requests: dict[str, str]) -> dict[str, Any]:
    resources = {"requests": requests, "limits": requests}
    return {"containers": [{"name": "work", "image": "none", "resources": resources}]}


@pytest.fixture(scope="module")
def refusing(api_server: ApiServer) -> Iterator[ApiServer]:
    policy = str(MANIFESTS / "components/refuse-burstable-batch/policy.yaml")
    api_server.kubectl("apply", "-f", policy)
    try:
        namespace, until_s = api_server.namespace(), time.monotonic() + IN_FORCE_S
        while not refused(api_server, namespace, "tried", spec({"cpu": "1"})):
            assert time.monotonic() < until_s, "the policy does not come into force"
            api_server.delete(f"/api/v1/namespaces/{namespace}/pods/tried")
        yield api_server
    finally:
        api_server.kubectl("delete", "-f", policy)


def refused(server: ApiServer, namespace: str, name: str, given: dict[str, Any], labels: Any = BE) -> bool:
    try:
        server.pod(namespace, name, labels=labels, spec=given)
    except RefusedError as error:
        return REFUSED in str(error)
    return False


def test_a_batch_pod_of_batch_resources_alone_is_taken(refusing: ApiServer, namespace: str) -> None:
    assert not refused(refusing, namespace, "job", spec(BATCH))


def test_a_batch_pod_that_a_limit_range_gives_requests_is_refused(refusing: ApiServer, namespace: str) -> None:
    refusing.post(f"/api/v1/namespaces/{namespace}/limitranges", LIMIT_RANGE)
    until_s = time.monotonic() + IN_FORCE_S
    while not refused(refusing, namespace, "job", spec(BATCH)):
        assert time.monotonic() < until_s, "the LimitRange does not come into force"
        refusing.delete(f"/api/v1/namespaces/{namespace}/pods/job")


def test_a_batch_pod_with_resources_of_its_own_is_refused(refusing: ApiServer, namespace: str) -> None:
    whole = spec(BATCH) | {"resources": {"requests": {"cpu": "1"}}}

    assert refused(refusing, namespace, "job", whole)


def test_native_memory_of_an_init_container_is_refused(refusing: ApiServer, namespace: str) -> None:
    init = {"name": "first", "image": "none", "resources": {"limits": {"memory": "1Gi"}}}

    assert refused(refusing, namespace, "job", spec(BATCH) | {"initContainers": [init]})


def test_services_are_nobodys_business(refusing: ApiServer, namespace: str) -> None:
    assert not refused(refusing, namespace, "web", spec({"cpu": "1"}), labels=None)
