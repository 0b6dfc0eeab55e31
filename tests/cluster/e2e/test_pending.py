"""A deadline for pending pods on a real node: the kubelet leaves a pod alone that the bridge has failed."""

from collections.abc import Iterator

import pytest

from slacktide.agents.cluster.pending.deadlines import REASON
from slacktide.schemas.kubernetes_pod import PENDING_DEADLINE
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.own_scheduler import apply_component, with_option

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]


@pytest.fixture
def deadlines(slacktide: Installed) -> Iterator[None]:
    apply_component(slacktide, "pending-deadlines")
    with with_option(slacktide, "bridge", "--pending-deadlines"):
        yield


def job() -> Json:
    """Whose image is not there, and is not fetched."""
    container = {"name": "main", "image": "none.invalid/none:1", "imagePullPolicy": "Never"}
    template = {
        "metadata": {"annotations": {PENDING_DEADLINE: "5"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "stuck"},
            "spec": {"backoffLimit": 0, "template": template}}  # fmt: skip


@pytest.mark.usefixtures("deadlines")
def test_a_pod_whose_image_does_not_exist_fails_with_that_reason_and_its_job_with_it(slacktide: Installed) -> None:
    node = slacktide.node
    space = node.namespace("pending")
    jobs = f"/apis/batch/v1/namespaces/{space}/jobs"
    node.post(jobs, job())

    def ended() -> bool:
        conditions = node.get(f"{jobs}/stuck")["status"].get("conditions", [])
        return any(one["type"] == "Failed" for one in conditions)

    node.wait(ended, "the job has failed")
    [pod] = node.pods(space, "job-name=stuck")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", REASON)
    assert "ErrImageNeverPull" in pod["status"]["message"]
    assert pod["spec"]["nodeName"] == node.name
    node.wait(lambda: REASON in slacktide.explain("job", f"{space}/stuck"), "so it is explained")
    node.kubectl("delete", "namespace", space, "--wait=false")
