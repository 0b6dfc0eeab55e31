"""``slacktide calc queue_job_start``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.queue.queue_case import known, unique
from slacktide.deploy.cli.calc.queue.queue_job import Pods
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.job import (
    Admission,
    Conflict,
    Flavor,
    JobTemplate,
    Toleration,
    started,
    stopped,
)


class GivenToleration(Given, frozen=True, kw_only=True):
    """A toleration; absent fields are not set."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def toleration(self) -> Toleration:
        """Convert to the rule's type."""
        return Toleration(self.key, self.operator, self.value, self.effect)


class GivenFlavor(Given, frozen=True, kw_only=True):
    """A ResourceFlavor."""

    name: str
    node_labels: dict[str, str] | None = None
    tolerations: list[GivenToleration] | None = None

    def flavor(self) -> Flavor:
        """Convert to the rule's type."""
        return Flavor(self.node_labels or {}, tolerations_of(self.tolerations))


class GivenTemplate(Given, frozen=True, kw_only=True):
    """A Job at the creation of its workload."""

    parallelism: Pods = 1
    completions: Pods | None = None
    annotations: dict[str, str] | None = None
    pod_labels: dict[str, str] | None = None
    pod_annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[GivenToleration] | None = None

    def template(self) -> JobTemplate:
        """Convert to the rule's type."""
        return JobTemplate(
            suspend=True,
            parallelism=self.parallelism,
            completions=self.completions,
            pod_labels=self.pod_labels or {},
            pod_annotations=self.pod_annotations or {},
            node_selector=self.node_selector or {},
            tolerations=tolerations_of(self.tolerations),
        )


class GivenAdmission(Given, frozen=True, kw_only=True):
    """The admission of the Job's workload; flavors by resource."""

    workload_name: str
    cluster_queue: str
    local_queue: str
    count: Pods
    flavors: dict[str, str] = {}


class Input(Given, frozen=True, kw_only=True):
    """A Job, its admission, and all flavors."""

    flavors: list[GivenFlavor] | None = None
    job: GivenTemplate
    admission: GivenAdmission

    def admitted(self) -> Admission:
        """Convert to the rule's type; flavors in the order of their resources."""
        unique((one.name for one in self.flavors or ()), "input.flavors")
        by_name = {one.name: one.flavor() for one in self.flavors or ()}
        given = self.admission
        names = dict.fromkeys(name for _, name in sorted(given.flavors.items()))
        flavors = tuple(known(by_name, name, "input.admission.flavors") for name in names)
        return Admission(given.workload_name, given.cluster_queue, given.local_queue, given.count, flavors)


def calculate(given: Input) -> Calculated:
    """Start and stop a Job."""
    job, annotations = given.job.template(), given.job.annotations or {}
    running = started(job, annotations, given.admitted())
    if isinstance(running, Conflict):
        bound = f"conflict:{running.field}:{running.key}"
        return Calculated(output={"error": True}, because=[Because(of="running", bound=bound, terms={})])
    because = Because(
        of="running/parallelism",
        bound="spec" if running.parallelism == job.parallelism else "admitted",
        terms={"spec_parallelism": job.parallelism, "admitted_count": given.admission.count},
    )
    done = stopped(running, job, annotations)
    return Calculated(output={"running": _shown(running), "stopped": _shown(done)}, because=[because])


def _shown(job: JobTemplate) -> dict[str, object]:
    shown = job._asdict()
    shown["tolerations"] = sorted((_written(one) for one in job.tolerations), key=_json)
    return shown


def _written(one: Toleration) -> dict[str, str]:
    return {name: text for name, text in sorted(one._asdict().items()) if text}


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def tolerations_of(given: Iterable[GivenToleration] | None) -> tuple[Toleration, ...]:
    """Convert to the rule's type."""
    return tuple(one.toleration() for one in given or ())
