"""Parses a pod's manifest, as from ``kubectl get pod -o yaml``: node constraints, controller, Services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes_fields import Reader
from slacktide.schemas.kubernetes_pod import pod_of
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.qos import BANDS
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of

NOT_CREATED = "(not created yet)"
"""Replaces the uid of a pod that only exists as a manifest."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"affinity.nodeAffinity.{_REQUIRED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One pod and related objects of its file."""

    pod: Pod
    node: str
    """The bound node; "": none."""
    scheduler: str
    labels: Mapping[str, str]
    node_selector: Mapping[str, str]
    affinity: tuple[Selector, ...] | None
    """Required node affinity: one of these must match; None: any node."""
    not_judged: tuple[str, ...]
    """Constraints that Kafka has no data for."""
    owner_kind: str
    owner_name: str
    """The controller; "": none."""
    restart_policy: str
    scheduling: str
    """The message of its condition PodScheduled."""
    unserved: bool
    """No scheduler has tried the stored pod."""
    services: tuple[str, ...]
    """Services in the same file that select it."""
    notes: tuple[str, ...]
    """Parts of the file that could not be used."""


def manifest_of(document: object, file: str, namespace: str, name: str) -> Manifest:
    """Read a pod from a document: a Pod, or a List that may also hold Services.

    Args:
        document: plain data.
        file: its name, for messages.
        namespace: the pod's.
        name: the pod's.

    Raises:
        ConfigError: the pod is missing or invalid.
    """
    reader = Reader(file)
    items = list(_items(document, reader))
    found = next(((path, item) for path, item in items if _is(item, "Pod", namespace, name)), None)
    if found is None:
        pods = [f"{_namespace(item)}/{_name(item)}" for _, item in items if item.get("kind") == "Pod"]
        reader.refuse("kind", ", ".join(pods) or "no Pod", f"Pod {namespace}/{name}, alone or in a List")
        raise ConfigError(reader.findings)
    manifest = _manifest(*found, reader, tuple(_services(items, found[1], namespace, reader)))
    if reader.findings:
        raise ConfigError(reader.findings)
    return manifest


def _items(document: object, reader: Reader) -> Iterator[tuple[str, Mapping[str, Any]]]:
    body = reader.mapping(document, "(document)")
    if body.get("kind") != "List":
        yield "", body
        return
    for index, item in enumerate(reader.sequence(body.get("items"), "items")):
        yield f"items[{index}].", reader.mapping(item, f"items[{index}]")


def _metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(item: Mapping[str, Any]) -> str:
    return str(_metadata(item).get("name"))


def _namespace(item: Mapping[str, Any]) -> str:
    return str(_metadata(item).get("namespace") or "default")


def _is(item: Mapping[str, Any], kind: str, namespace: str, name: str) -> bool:
    return (item.get("kind"), _namespace(item), _name(item)) == (kind, namespace, name)


def _manifest(path: str, item: Mapping[str, Any], reader: Reader, services: tuple[str, ...]) -> Manifest:
    where = path.removesuffix(".") or "pod"
    item = _admitted(item, reader.at(item, where, "spec"))
    spec = reader.at(item, where, "spec")
    affinity, not_judged = _affinity(spec, where, reader)
    owner = _owner(item, where, reader)
    status = reader.at(item, where, "status")
    conditions = reader.sequence(status.get("conditions"), f"{where}.status.conditions")
    return Manifest(
        pod=pod_of(where, item, reader),
        node=str(spec.get("nodeName") or ""),
        scheduler=str(spec.get("schedulerName") or "default-scheduler"),
        labels=reader.texts(reader.at(item, where, "metadata.labels"), f"{where}.metadata.labels"),
        node_selector=reader.texts(reader.at(spec, f"{where}.spec", "nodeSelector"), f"{where}.spec.nodeSelector"),
        affinity=affinity,
        not_judged=(*not_judged, *_other_wishes(spec)),
        owner_kind=str(owner.get("kind") or ""),
        owner_name=str(owner.get("name") or ""),
        restart_policy=str(spec.get("restartPolicy") or "Always"),
        scheduling=_scheduling(conditions),
        unserved=_is_unserved(item, status, conditions),
        services=services,
        notes=tuple(reader.notes),
    )


def _admitted(item: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the fields that the API server sets: a uid, and the priority of one of the four classes."""
    if not _metadata(item).get("uid"):
        item = {**item, "metadata": {**_metadata(item), "uid": NOT_CREATED}}
    band = BANDS.get(str(spec.get("priorityClassName")))
    return item if band is None or spec.get("priority") is not None else {**item, "spec": {**spec, "priority": band[0]}}


def _owner(item: Mapping[str, Any], where: str, reader: Reader) -> Mapping[str, Any]:
    listed = reader.sequence(_metadata(item).get("ownerReferences"), f"{where}.metadata.ownerReferences")
    owners = [one for one in listed if isinstance(one, dict)]
    return next((one for one in owners if one.get("controller")), owners[0] if owners else {})


def _scheduling(conditions: Sequence[Any]) -> str:
    for one in conditions:
        if isinstance(one, dict) and one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message") or one.get("reason") or "")
    return ""


def _is_unserved(item: Mapping[str, Any], status: Mapping[str, Any], conditions: Sequence[Any]) -> bool:
    """Return whether no scheduler tried the pod: the first attempt, or a scheduling gate, sets PodScheduled."""
    created = _metadata(item).get("uid") not in (None, NOT_CREATED) and bool(status)
    return created and not any(isinstance(one, dict) and one.get("type") == "PodScheduled" for one in conditions)


def _affinity(spec: Mapping[str, Any], where: str, reader: Reader) -> tuple[tuple[Selector, ...] | None, list[str]]:
    terms = reader.sequence(
        reader.at(spec, f"{where}.spec", _TERMS).get("nodeSelectorTerms"), f"{where}.spec.{_TERMS}.nodeSelectorTerms"
    )
    selectors, not_judged = [], []
    for term in terms:
        listed = reader.mapping(term, "nodeSelectorTerms")
        expressions = [
            _expression(reader.mapping(one, "matchExpressions"), reader)
            for one in reader.sequence(listed.get("matchExpressions"), "matchExpressions")
        ]
        selector = selector_of({}, expressions)
        if isinstance(selector, InvalidSelector):
            not_judged.append(f"node affinity: {selector.why}")
        elif listed.get("matchFields"):
            not_judged.append("node affinity by matchFields")
        elif expressions:  # an empty term matches no node
            selectors.append(selector)
    # If one of several terms is unknown, it may match any node.
    return (tuple(selectors) if terms and not not_judged else None), not_judged


def _expression(one: Mapping[str, Any], reader: Reader) -> Expression:
    values = reader.sequence(one.get("values"), "matchExpressions.values")
    return Expression(
        key=str(one.get("key")), operator=str(one.get("operator")), values=tuple(str(value) for value in values)
    )


def _other_wishes(spec: Mapping[str, Any]) -> Iterator[str]:
    affinity = spec.get("affinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        if isinstance(affinity, dict) and affinity.get(kind):
            yield kind
    if spec.get("topologySpreadConstraints"):
        yield "topologySpreadConstraints"


def _services(
    items: list[tuple[str, Mapping[str, Any]]], pod: Mapping[str, Any], namespace: str, reader: Reader
) -> Iterator[str]:
    labels = reader.texts(reader.at(pod, "pod", "metadata.labels"), "metadata.labels")
    for path, item in items:
        if item.get("kind") == "Service" and _namespace(item) == namespace:
            selector = reader.at(item, path, "spec.selector")
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                yield _name(item)
