"""Changes a pod template for a start, and restores it. An annotation keeps the original values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from slacktide.schemas.queue_objects import ResourceFlavorObject
from slacktide.streams.decisions.queue.job import Admission, Conflict, Flavor, JobTemplate, Toleration, started

ORIGINAL = "slacktide.io/queue-original"
"""Annotation of a started object: JSON of the original values."""
Json = dict[str, Any]


class Template(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a pod template that a start changes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Json] = []


def template_of(raw: Mapping[str, Any]) -> Template:
    """Return the fields of a pod template from JSON."""
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    return Template(
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        node_selector=spec.get("nodeSelector") or {},
        tolerations=spec.get("tolerations") or [],
    )


def change(now: Template, then: Template) -> Json:
    """Return the merge patch from one pod template to another."""
    body: Json = {}
    metadata = {name: _keys(getattr(now, name), getattr(then, name)) for name in ("labels", "annotations")}
    if any(metadata.values()):
        body["metadata"] = {name: keys for name, keys in metadata.items() if keys}
    spec: Json = {}
    if selector := _keys(now.node_selector, then.node_selector):
        spec["nodeSelector"] = selector
    if now.tolerations != then.tolerations:
        spec["tolerations"] = then.tolerations or None
    return body | ({"spec": spec} if spec else {})


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


def flavors_of(names: Iterable[str], there: Mapping[str, ResourceFlavorObject]) -> tuple[Flavor, ...] | str:
    """Return the distinct flavors of a pod set, or the name of one that does not exist."""
    found = []
    for name in dict.fromkeys(names):
        if name not in there:
            return name
        spec = there[name].spec
        tolerations = tuple(Toleration(one.key, one.operator, one.value, one.effect) for one in spec.tolerations or ())
        found.append(Flavor(spec.node_labels or {}, tolerations))
    return tuple(found)


def _keys(now: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str | None]:
    changed: dict[str, str | None] = {key: value for key, value in then.items() if now.get(key) != value}
    return changed | dict.fromkeys(now.keys() - then.keys())
