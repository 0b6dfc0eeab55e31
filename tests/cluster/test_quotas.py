"""Quotas of the cluster's own: what they refuse of Slacktide and of batch pods, and the ways that the docs name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.brokers import running
from testbed.cluster.api_server import ApiServer, RefusedError
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.quotas import CRITICAL, LIMITED, in_force
from testbed.cluster.webhook import Webhook, install

pytestmark = pytest.mark.cluster

BATCH: dict[str, Any] = {"app-type": "batch"}
REQUESTS = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A cluster whose critical priority classes need a quota, with the manifests applied."""
    file = tmp_path_factory.mktemp("admission") / "admission.json"
    file.write_text(json.dumps(LIMITED))

    class Limited(ApiServer):
        API_FLAGS = {**ApiServer.API_FLAGS, "admission-control-config-file": str(file)}

    with running(Limited) as api:
        install(api)
        yield api


def quota(server: ApiServer, namespace: str, **spec: Any) -> None:
    body = {"metadata": {"name": "cpu"}, "spec": {"hard": {"requests.cpu": "4"}, **spec}}
    server.post(f"/api/v1/namespaces/{namespace}/resourcequotas", body)
    in_force(server, namespace, "cpu")


def containers(**resources: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "localhost/busybox:1", "resources": resources}]}


def test_where_critical_classes_need_a_quota_the_base_brings_it(limited: ApiServer) -> None:
    in_force(limited, SYSTEM, "slacktide-critical-pods")
    for name in CRITICAL:
        limited.pod(SYSTEM, f"part-{name}", spec={"priorityClassName": name})
        with pytest.raises(RefusedError, match="insufficient quota to match these scopes"):
            limited.pod(limited.namespace(), "other", spec={"priorityClassName": name})


def test_a_quota_of_cpu_requests_refuses_batch_pods_unless_it_is_for_pods_that_are_not_best_effort(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    """The webhook moves their requests to batch resources: to Kubernetes they are BestEffort."""
    assert webhook.process.running
    quota(admitting, batch)
    with pytest.raises(RefusedError, match=r"must specify requests.cpu"):
        admitting.pod(batch, "refused", labels=BATCH, spec=containers(**REQUESTS))
    admitting.delete(f"/api/v1/namespaces/{batch}/resourcequotas/cpu")
    quota(admitting, batch, scopes=["NotBestEffort"])
    made = admitting.pod(batch, "made", labels=BATCH, spec=containers(**REQUESTS))

    assert "cpu" not in made["spec"]["containers"][0]["resources"]["requests"]
    with pytest.raises(RefusedError, match="exceeded quota"):
        admitting.pod(batch, "large", spec=containers(requests={"cpu": "5"}))


def test_a_pod_with_huge_pages_is_refused_where_a_profile_makes_it_best_effort(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    """Huge pages need a native CPU or memory request, which the profile takes away."""
    assert webhook.process.running
    pages = {"hugepages-2Mi": "4Mi", "memory": "64Mi", "cpu": "1"}
    spec = containers(requests=pages, limits=pages)
    with pytest.raises(RefusedError, match="HugePages require cpu or memory"):
        admitting.pod(batch, "refused", labels=BATCH, spec=spec)
    admitting.pod(batch, "outside", labels={"app-type": "other"}, spec=spec)
