"""Quotas of a cluster's own, without the controller that keeps them."""

from __future__ import annotations

from testbed.cluster.api_server import ApiServer

CRITICAL = ["system-node-critical", "system-cluster-critical"]
LIMITED = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [
                    {
                        "resource": "pods",
                        "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": CRITICAL}],
                    }
                ],
            },
        }
    ],
}
"""What an API server is given so that pods of the critical classes need a quota."""


def in_force(server: ApiServer, namespace: str, quota: str) -> None:
    """As the quota controller does: what is allowed goes into the status."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/{quota}"
    hard = server.get(path)["spec"]["hard"]
    server.patch(f"{path}/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
