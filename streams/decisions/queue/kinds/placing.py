"""What a start changes in a pod template: labels, annotations, node selector and tolerations."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from slacktide.streams.decisions.queue.job import Admission, Conflict, JobTemplate, Toleration, started
from slacktide.streams.decisions.queue.kinds.manifest import Changes, Json, Part, Path, value_at

ORIGINAL = "slacktide.io/queue-original"
"""Annotation of a started object: JSON of the original values."""
GATE = "slacktide.io/queue"
"""Scheduling gate of a pod that waits in a queue, and the manager of a queue's patches."""


class Template(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a pod template that a start changes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Json] = []


class Place(NamedTuple):
    """Where an object has these fields."""

    labels: Path
    annotations: Path
    node_selector: Path
    tolerations: Path


def place_of(template: Path) -> Place:
    """Return the place of a pod template's fields, or of a pod's."""
    metadata, spec = (*template, "metadata"), (*template, "spec")
    return Place((*metadata, "labels"), (*metadata, "annotations"), (*spec, "nodeSelector"), (*spec, "tolerations"))


HERE = place_of(())
"""Of a template itself."""


def template_at(raw: Json, place: Place) -> Template:
    """Return what a start changes. Raises CaseError."""
    labels, annotations, selector = (Part(value_at(raw, path), path).texts() for path in place[:3])
    tolerations = [dict(one.map()) for one in Part(value_at(raw, place.tolerations), place.tolerations).parts()]
    return Template(labels=labels, annotations=annotations, node_selector=selector, tolerations=tolerations)


def begun(
    template: Template,
    admission: Admission,
    *,
    job: JobTemplate | None = None,
    annotations: Mapping[str, str] | None = None,
) -> tuple[Template, JobTemplate] | Conflict:
    """Return the template with the node selectors and tolerations of the assigned flavors.

    ``job``: the object's counts, if admission may change them. ``annotations``: of the object.
    """
    own = tuple(Toleration(*(str(one.get(name) or "") for name in Toleration._fields)) for one in template.tolerations)
    made = started(
        (job or JobTemplate(suspend=True, parallelism=admission.pods))._replace(
            pod_labels=template.labels,
            pod_annotations=template.annotations,
            node_selector=template.node_selector,
            tolerations=own,
        ),
        annotations or {},
        admission,
    )
    if isinstance(made, Conflict):
        return made
    added = [{key: value for key, value in one._asdict().items() if value} for one in made.tolerations[len(own) :]]
    then = Template(
        labels=dict(made.pod_labels),
        annotations=dict(made.pod_annotations),
        node_selector=dict(made.node_selector),
        tolerations=[*template.tolerations, *added],
    )
    return then, made


def differences(raw: Json, place: Place, then: Template, kept: Json) -> Changes:
    """Return what differs in a template, and keep what it replaces."""
    changes, names = Changes(), ("labels", "annotations", "nodeSelector", "tolerations")
    for name, path, after in zip(names, place, msgspec.structs.astuple(then), strict=True):
        before = value_at(raw, path)
        if (before or type(after)()) != after:
            changes[path] = None if after == [] else after
            kept[name] = before
    return changes
