"""A batch pod that is evicted comes again by itself: its Job makes another, and has not failed."""

import pytest

from testbed.cluster import batch, images
from testbed.cluster.api_server import Json
from testbed.cluster.real_node import RealNode
from testbed.cluster.webhook import eviction

pytestmark = pytest.mark.realnode


def running(node: RealNode, namespace: str) -> list[Json]:
    """Pods that run and were not asked to end."""
    return [
        pod
        for pod in node.pods(namespace)
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def test_an_evicted_pod_s_job_makes_another_and_counts_no_failure(real_node: RealNode) -> None:
    """Evicted as agents do it: through the Eviction API, by the pod's uid."""
    namespace = real_node.namespace()
    container = {"name": "main", "image": images.BUSYBOX, "command": ["sleep", "3600"]}
    spec = {"schedulerName": "koord-scheduler", "terminationGracePeriodSeconds": 1, "containers": [container]}
    batch.job(real_node, namespace, "etl", spec, podFailurePolicy=batch.FORGIVES)
    real_node.wait(lambda: running(real_node, namespace), "the Job's pod runs")
    [first] = running(real_node, namespace)
    name = first["metadata"]["name"]
    real_node.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction(first))
    real_node.wait(lambda: running(real_node, namespace), "another pod of the Job runs")
    [second] = running(real_node, namespace)
    job = real_node.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/etl")

    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert job["spec"]["backoffLimit"] == 0
    assert not job["status"].get("failed")
    assert not [one for one in job["status"].get("conditions", ()) if one["type"] == "Failed"]
