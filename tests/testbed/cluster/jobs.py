"""The Job controller on an API server without nodes, and who says of its pods what a kubelet would."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.brokers import free_port
from testbed.rungs import built_program

from .api_server import ApiServer, Json, RefusedError, flagged
from .programs import Program

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
Outcome = dict[str, Any]
"""``phase``, and ``code`` or ``condition`` where it is failed."""


@contextlib.contextmanager
def job_controller(cluster: ApiServer) -> Iterator[None]:
    """kube-controller-manager with what makes, counts and deletes Jobs' pods, as the admin, without limits of rate."""
    flags = {
        "kubeconfig": str(cluster.kubeconfig),
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "secure-port": str(free_port()),
        "controllers": "job-controller,garbage-collector-controller",
        "kube-api-qps": "2000",
        "kube-api-burst": "2000",
    }
    program = Program("kube-controller-manager", cluster.folder / "job-controller.log")
    program.spawn([str(built_program("kube-controller-manager")), *flagged(flags)])
    try:
        yield
    finally:
        program.stop(signal.SIGKILL)


class Batch:
    def __init__(
        self,
        cluster: ApiServer,
        name: str = "job",
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        self._cluster = cluster
        self.name = name
        self.namespace = namespace or cluster.namespace("jobs")
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m"}}}
        metadata = {"annotations": spec.pop("annotations", {})}
        template = {
            "metadata": metadata,
            "spec": {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})},
        }
        body = {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": {"template": template, **spec}}
        self.uid = str(cluster.post(self._jobs, body)["metadata"]["uid"])

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def status(self) -> Json:
        return dict(self._cluster.get(f"{self._jobs}/{self.name}").get("status", {}))

    @property
    def spec(self) -> Json:
        return dict(self._cluster.get(f"{self._jobs}/{self.name}")["spec"])

    @property
    def finished(self) -> bool:
        return any(one["type"] in {"Complete", "Failed"} for one in self.status.get("conditions", ()))

    def change(self, **spec: Any) -> None:
        self._cluster.patch(f"{self._jobs}/{self.name}", {"spec": spec})

    def delete(self) -> None:
        self._cluster.request("DELETE", f"{self._jobs}/{self.name}", {"propagationPolicy": "Background"})

    def pods(self) -> list[Json]:
        mine = f"labelSelector=batch.kubernetes.io/controller-uid%3D{self.uid}"
        items = self._cluster.get(f"/api/v1/namespaces/{self.namespace}/pods?{mine}")["items"]
        return [one for one in items if one["status"]["phase"] in {"Pending", "Running"}]

    def say(self, pod: Json, phase: str, *, code: int | None = None, condition: str = "") -> None:
        status: Json = {"phase": phase}
        if code is not None:
            ended = {"exitCode": code, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:10Z"}
            container = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
            status["containerStatuses"] = [{**container, "state": {"terminated": ended}}]
        conditions = [{"type": condition, "status": "True"}] if condition else []
        if phase == "Running":
            conditions.append({"type": "Ready", "status": "True"})
        if conditions:
            status["conditions"] = conditions
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        with contextlib.suppress(RefusedError):  # its controller has deleted it
            self._cluster.patch(path, {"status": status})

    def run(
        self, outcome: Callable[[int, int], Outcome | None], until: Callable[[int], bool], within_s: float = 90
    ) -> int:
        """Let pods end until so many are enough; outcomes are by index and how often that failed, None: it goes on."""
        said: set[str] = set()
        until_s = time.monotonic() + within_s
        with ThreadPoolExecutor(4) as threads:
            while not (until(len(said)) or self.finished):
                assert time.monotonic() < until_s, f"{self.key}: {len(said)} pods have ended, {self.status}"
                new = [one for one in self.pods() if one["metadata"]["name"] not in said][:200]
                said |= {one["metadata"]["name"] for one in new}
                ends = [(one, end) for one in new if (end := outcome(*_place(one))) is not None]
                list(threads.map(lambda one: self.say(one[0], **one[1]), ends))
                time.sleep(0.0 if new else 0.2)
        return len(said)


def _place(pod: Json) -> tuple[int, int]:
    annotations = pod["metadata"].get("annotations", {})
    return int(annotations.get(INDEX, 0)), int(annotations.get(FAILURES, 0))
