"""Quotas of a cluster's own, without the controller that keeps them."""

from testbed.cluster.api_server import ApiServer
from testbed.filled import read_filled

CRITICAL = ["system-node-critical", "system-cluster-critical"]
LIMITED = read_filled("limited-pods.yaml")


def in_force(server: ApiServer, namespace: str, quota: str) -> None:
    """As the quota controller does: what is allowed goes into the status."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/{quota}"
    hard = server.get(path)["spec"]["hard"]
    server.patch(f"{path}/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
