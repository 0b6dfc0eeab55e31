"""What Kueue leaves on a cluster, by its manifests' shapes: webhooks, its lease, Workloads that it admitted."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import MANIFESTS
from testbed.filled import FILES, read_filled

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
LEASE = "c1f6bfd2.kueue.x-k8s.io"
WORKLOADS = FILES / "kueue-workloads.yaml"


@contextlib.contextmanager
def webhook(server: ApiServer) -> Iterator[None]:
    """Kueue's webhook is configured, and does not answer."""
    rule = {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["workloads"]}
    hook = {
        "name": "v.kb.io",
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
    }
    name = "kueue-validating-webhook-configuration"
    server.post(WEBHOOKS, {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        yield
    finally:
        server.delete(f"{WEBHOOKS}/{name}")


def lease(server: ApiServer, namespace: str, *, renewed_s_ago: float) -> None:
    """Kueue's controller renewed its lease then."""
    at = (datetime.now(UTC) - timedelta(seconds=renewed_s_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "kueue-0", "renewTime": at, "leaseDurationSeconds": 15}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    server.post(path, {"metadata": {"name": LEASE}, "spec": spec})


def admitted(server: ApiServer, namespace: str, name: str, **status: Any) -> None:
    """A Workload to which somebody gave quota."""
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
    server.post(path, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name}})
    condition = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved",
                 "lastTransitionTime": "2026-11-26T00:00:00Z", "message": ""}  # fmt: skip
    server.patch(f"{path}/{name}/status", {"status": {"conditions": [condition], **status}})


def with_effective_quotas(server: ApiServer) -> None:
    """ClusterQueues have the field in their status from now on."""
    definition = yaml.safe_load((MANIFESTS / "components/queue-crds/clusterqueues.yaml").read_text())
    for version in definition["spec"]["versions"]:
        version["subresources"] = {"status": {}}
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = read_filled("kueue-effective-quotas.yaml")
    server.apply(yaml.safe_dump(definition))
    path = "/openapi/v3/apis/kueue.x-k8s.io/v1beta2"
    server.wait(lambda: "effectiveQuotas" in server.text(path), "the API server publishes the field")
