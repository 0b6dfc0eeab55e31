"""Reads an object by its kind's row, and the kinds of Ray, whose pods need more than a row."""

from collections.abc import Iterable, Iterator, Sequence

from slacktide.schemas.bounds import INT32_MAX
from slacktide.streams.decisions.queue.kinds.manifest import Json, Part, changed
from slacktide.streams.decisions.queue.kinds.placing import place_of
from slacktide.streams.decisions.queue.kinds.pods import PodGroup
from slacktide.streams.decisions.queue.kinds.queued import PodSet, Queued
from slacktide.streams.decisions.queue.kinds.rows import (
    PARENTS,
    POD,
    RAY_CLUSTER,
    RAY_JOB,
    ROWS,
    SPARK,
    TRAIN_JOB,
    Row,
    kind_of,
)
from slacktide.streams.decisions.queue.kinds.spark import SparkApplication
from slacktide.streams.decisions.queue.kinds.trainer import TrainJob

HEAD, SUBMITTER = "head", "submitter"
_SUBMITTING = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""Resources of KubeRay's submitter."""


class _Ray(Queued):
    @property
    def _cluster(self) -> Part:
        return self.object["spec"]

    def refusal(self) -> str:
        """Return why it is not queued."""
        if self._cluster["enableInTreeAutoscaling"].flag():
            return "autoscaling"
        names = [one["groupName"].text().lower() for one in self._cluster["workerGroupSpecs"].parts()]
        return "reserved_name" if HEAD in names else ""

    def _groups(self, cluster: Part) -> Iterator[PodSet]:
        head = cluster["headGroupSpec.template"]
        yield PodSet(HEAD, 1, head, place_of(head.keys))
        for one in cluster["workerGroupSpecs"].parts():
            pods = max(one["minReplicas"].whole(0),
                       min(one["replicas"].whole(0), one["maxReplicas"].whole(INT32_MAX)))  # fmt: skip
            count = 0 if one["suspend"].flag() else pods * one["numOfHosts"].whole(1)
            template = one["template"]
            yield PodSet(one["groupName"].text(), count, template, place_of(template.keys))


class RayCluster(_Ray):
    """A RayCluster. It never finishes."""

    def sets_of(self, spec: Part) -> Iterator[PodSet]:
        """Yield the head and the groups."""
        return self._groups(spec["spec"])


class RayJob(_Ray):
    """A RayJob with its own RayCluster."""

    @property
    def _cluster(self) -> Part:
        return self.object["spec.rayClusterSpec"]

    def refusal(self) -> str:
        """Return why it is not queued."""
        spec = self.object["spec"]
        if spec["clusterSelector"].map():
            return "cluster_selector"
        return super().refusal() if spec["shutdownAfterJobFinishes"].flag() else "not_suspendable"

    def sets_of(self, spec: Part) -> Iterator[PodSet]:
        """Yield the head, the groups, and the submitter of a Kubernetes Job."""
        spec = spec["spec"]
        mode, template = spec["submissionMode"].text() or "K8sJobMode", spec["submitterPodTemplate"]
        head, *groups = self._groups(spec["rayClusterSpec"])
        submitter = template if template.there else Part(_submitter(head.pod), template.keys)
        if mode == "SidecarMode":
            both = [*head.pod["spec"].map().get("containers", []), *submitter["spec"].map().get("containers", [])]
            head = head._replace(pod=Part(changed(dict(head.pod.map()), {("spec", "containers"): both}), head.pod.keys))
        yield head
        yield from groups
        if mode == "K8sJobMode":
            absent = None if template.there else template.keys
            yield PodSet(SUBMITTER, 1, submitter, place_of(template.keys), absent=absent)


def _submitter(head: Part) -> Json:
    image = next((one["image"].text() for one in head["spec.containers"].parts()), "")
    container = {"name": "ray-job-submitter", "image": image, "resources": _SUBMITTING}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


COMPUTED: dict[str, type[Queued]] = {
    TRAIN_JOB.kind: TrainJob,
    RAY_JOB.kind: RayJob,
    RAY_CLUSTER.kind: RayCluster,
    SPARK.kind: SparkApplication,
    POD.kind: PodGroup,
}
"""Kinds whose pod sets have a module."""


class _Other(Queued):
    """A kind without a row."""

    def refusal(self) -> str:
        """Return that its kind is not queued."""
        return "kind"


class Table:
    """The rows of Slacktide, and ``own`` rows of users."""

    def __init__(self, own: Iterable[Row] = ()) -> None:
        self.rows = (*ROWS, *own)
        self._rows = {(row.api_version, row.kind): row for row in self.rows}
        self._parents = PARENTS | {kind_of(*names) for names in self._rows}

    def read(self, given: Sequence[Json]) -> Queued:
        """Read an object, and others that it depends on. Raises CaseError."""
        names = tuple(Part(given[0])[name].text() for name in ("apiVersion", "kind"))
        row = self._rows.get(names)  # type: ignore[arg-type]
        if row is None:
            return _Other(POD, given, self._parents)
        made = COMPUTED.get(row.kind, Queued) if row in ROWS else Queued
        return made(row, given, self._parents)
