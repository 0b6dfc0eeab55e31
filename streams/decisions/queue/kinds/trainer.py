"""TrainJobs: their pods are those of a runtime, and a start patches the runtime's templates in one of two writes."""

from collections.abc import Iterator, Mapping

from slacktide.streams.decisions.queue.job import Admission, Conflict
from slacktide.streams.decisions.queue.kinds.manifest import Changes, Json, Part, changed
from slacktide.streams.decisions.queue.kinds.placing import GATE, HERE, Template, begun, template_at
from slacktide.streams.decisions.queue.kinds.queued import ObjectWrite, PodSet, Queued

GROUP = "trainer.kubeflow.org"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
SINGLE = {"trainer", "dataset-initializer", "model-initializer"}
"""Steps whose Job is not replicated."""
NODE = "node"
OLD = ("podSpecOverrides", "podTemplateOverrides")
"""Fields of Trainer 2.0 and 2.1, which have no ``runtimePatches``."""


class TrainJob(Queued):
    """A TrainJob, then the runtimes that exist."""

    def refusal(self) -> str:
        """Return why it is not queued."""
        reference = self.object["spec"]["runtimeRef"]
        kind = reference["kind"].text() or "ClusterTrainingRuntime"
        wanted = (kind, self.metadata.namespace if kind == "TrainingRuntime" else "", reference["name"].text())
        found = {_named(Part(one)): one for one in self.given[1:]}
        if (reference["apiGroup"].text() or GROUP) != GROUP or wanted not in found:
            return "no_runtime"
        self._runtime = Part(found[wanted])["spec"]
        return "old_trainer" if any(self.object["spec"][name].there for name in OLD) else ""

    def sets_of(self, spec: Part) -> Iterator[PodSet]:
        """Yield a pod set for each replicated Job of the runtime."""
        trainer, policy = spec["spec.trainer"], self._runtime["mlPolicy"]
        nodes, mpi = trainer["numNodes"], policy["mpi"]
        launches = mpi["runLauncherAsNode"].flag()
        for one in self._runtime["template.spec.replicatedJobs"].parts():
            name, job = one["name"].text(), one["template"]
            step = job["metadata.labels"].texts().get(STEP, "")
            count = job["spec.parallelism"].whole(1)
            if step == "trainer" and policy.there:
                count = policy["numNodes"].whole(1)
            if nodes.there and (name == NODE if mpi.there else step == "trainer"):
                count = max(nodes.whole(1) - 1, 1) if launches else nodes.whole(1)
            replicas = 1 if step in SINGLE else one["replicas"].whole(1)
            pod = job["spec.template"]
            if step == "trainer" or (launches and name == NODE):
                pod = _with_resources(pod, trainer["resourcesPerNode"])
            yield PodSet(name, replicas * count, pod, HERE, replicas)

    def start(self, admitted: Mapping[str, Admission]) -> list[ObjectWrite] | Conflict:
        """Return two writes: the patches of the runtime's templates, then the switch."""
        jobs: list[Json] = []
        for one in self.sets:
            if one.name not in admitted:
                return Conflict("podSetAssignments", one.name, ", ".join(admitted), one.name)
            before = template_at(dict(one.pod.map()), HERE)
            made = begun(before, admitted[one.name])
            if isinstance(made, Conflict):
                return made
            jobs.append({"name": one.name, "template": {"spec": {"template": _added(before, made[0])}}})
        patch = {"manager": GATE, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        patches = ObjectWrite({("spec", "runtimePatches"): [*self._others, patch]})
        return [patches, ObjectWrite(self._switched(on=False))]

    def back(self) -> Changes | None:
        """Return the write that removes the patches of a start."""
        if not self.patched:
            return None
        return {("spec", "runtimePatches"): self._others or None}

    @property
    def patched(self) -> bool:
        """Return whether the first write of a start is there."""
        return len(self._others) < len(self._patches)

    @property
    def _patches(self) -> list[Part]:
        return self.object["spec.runtimePatches"].parts()

    @property
    def _others(self) -> list[Json]:
        return [dict(one.map()) for one in self._patches if one["manager"].text() != GATE]


def _named(runtime: Part) -> tuple[str, str, str]:
    kind, metadata = runtime["kind"].text(), runtime["metadata"]
    return kind, metadata["namespace"].text() if kind == "TrainingRuntime" else "", metadata["name"].text()


def _with_resources(pod: Part, given: Part) -> Part:
    """Merge the job's resources into those of the container of a node."""
    raw = dict(pod.map())
    for at, one in enumerate(pod["spec.containers"].parts()):
        if one["name"].text() == NODE:
            for kind in ("requests", "limits"):
                both = {**one["resources"][kind].map(), **given[kind].map()}
                if both:
                    raw = changed(raw, {("spec", "containers", at, "resources", kind): both})
    return Part(raw, pod.keys)


def _added(before: Template, then: Template) -> Json:
    """Return what a start adds to a template."""

    def new(name: str) -> dict[str, str]:
        had: dict[str, str] = getattr(before, name)
        has: dict[str, str] = getattr(then, name)
        return {key: value for key, value in has.items() if key not in had}

    metadata: Json = {"labels": new("labels"), "annotations": new("annotations")}
    spec: Json = {"nodeSelector": new("node_selector"), "tolerations": then.tolerations[len(before.tolerations) :]}
    made = {"metadata": metadata, "spec": spec}
    return {part: {name: value for name, value in one.items() if value} for part, one in made.items()}
