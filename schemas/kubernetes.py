"""One node and its pods as Kubernetes has them, from plain data as ``kubectl get node,pods -o yaml`` prints it.

Written by hand it may leave out what a running cluster fills in: status of pods, requests that equal limits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slacktide.schemas.errors import ConfigError, TextError
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.kubernetes_fields import Amounts, Reader, resources
from slacktide.schemas.kubernetes_pod import pod_of
from slacktide.schemas.text import json_of, shown

ANNOTATION_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
"""CPU and memory before Koordinator amplified them in the Node's status."""
FINDINGS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One node as its inventory describes it, and what of that could not be used."""

    facts: NodeFacts
    pods: list[Pod]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Pods of one node, and what of them could not be used."""

    pods: list[Pod]
    notes: tuple[str, ...]


def listed(item: object, file: str) -> Listed:
    """Read one pod as a node's kubelet lists it; all of them are the node's, whichever node they name.

    One that cannot be used is left out and reported: what one user writes may not hide everybody's pods.

    Args:
        item: the pod as plain data.
        file: where it comes from, for messages; they name the pod.
    """
    reader = Reader(file, of_users=True)
    metadata = item.get("metadata") if isinstance(item, dict) else None
    known = metadata if isinstance(metadata, dict) else {}
    pod = pod_of(f"{known.get('namespace')}/{known.get('name')}", reader.mapping(item, "pod"), reader)
    notes = (*reader.notes, *(f"{finding}; the pod is left out" for finding in reader.findings))
    return Listed(pods=[] if reader.findings else [pod], notes=notes)


def described(
    document: object, file: str, node: str | None = None, *, machine: Callable[[], Mapping[str, Any]] | None = None
) -> Described:
    """Read and validate an inventory.

    Args:
        document: a ``List`` of Nodes and Pods, or a Node alone, as plain data.
        file: its name, for messages.
        node: whose facts and pods are wanted; None: there is only one Node.
        machine: names the Node where the list holds none at all, only pods; None: it has to hold one.

    Raises:
        ConfigError: with every finding (20 at most): file, field path, value, what is accepted.
    """
    reader = Reader(file)
    items = _items(document, reader)
    nodes = {reader.text(item, f"{path}.metadata.name"): (path, item) for path, item in items if _kind(item) == "Node"}
    if machine is not None and not nodes:
        itself = machine()
        nodes = {reader.text(itself, "machine.metadata.name"): ("machine", itself)}
    if node is None and len(nodes) != 1:
        reader.refuse("items", f"{len(nodes)} Nodes", "one Node, or a node name that selects one")
        raise ConfigError(reader.findings)
    name = next(iter(nodes)) if node is None else node
    if name not in nodes:
        reader.refuse("items", f"no Node {name}", "a List that holds this Node")
        raise ConfigError(reader.findings)
    facts = _facts(*nodes[name], reader)
    pods = []
    for path, item in items:
        spec = item.get("spec")
        # A pod without a node's name belongs to whichever node the list is for.
        if _kind(item) == "Pod" and (not isinstance(spec, dict) or spec.get("nodeName") in (None, "", name)):
            pods.append(pod_of(path, item, reader))
    reader.report_twice("items[].metadata.uid", [pod.uid for pod in pods])
    other = sorted({_kind(item) for _, item in items} - {"Node", "Pod"})
    reader.notes += [f"{file}: items of kind {kind} are not read" for kind in other]
    if reader.findings:
        raise ConfigError(reader.findings[:FINDINGS_MAX])
    return Described(facts=facts, pods=pods, notes=tuple(reader.notes))


def node_of(item: object, file: str) -> Described:
    """Read one Node, without its pods.

    Args:
        item: the Node as plain data.
        file: where it comes from, for messages.

    Raises:
        ConfigError: with every finding: file, field path, value, what is accepted.
    """
    reader = Reader(file)
    facts = _facts("node", reader.mapping(item, "node"), reader)
    if reader.findings:
        raise ConfigError(reader.findings[:FINDINGS_MAX])
    return Described(facts=facts, pods=[], notes=tuple(reader.notes))


def ignored_annotations(annotations: Mapping[str, str]) -> list[str]:
    """Return which of a Node's annotations are ignored here, each with what is accepted."""
    reader = Reader("")
    _raw_allocatable(annotations.get(ANNOTATION_RAW_ALLOCATABLE), "", reader)
    _reservation(annotations.get(ANNOTATION_RESERVATION), "", reader)
    return reader.ignored_of("")


def _items(document: object, reader: Reader) -> list[tuple[str, Mapping[str, Any]]]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if isinstance(document, dict) and kind == "Node":
        return [("node", document)]
    if kind != "List":
        reader.refuse("kind", kind, '"List", as kubectl get node,pods -o yaml prints it, or "Node"')
        raise ConfigError(reader.findings)
    items = reader.sequence(reader.mapping(document, "").get("items"), "items")
    paths = [(f"items[{index}]", reader.mapping(item, f"items[{index}]")) for index, item in enumerate(items)]
    reader.report_twice(
        "items[].metadata.name", [str(_name(item)) for _, item in paths if _kind(item) == "Node" and _name(item)]
    )
    return paths


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("kind"))


def _name(item: Mapping[str, Any]) -> object:
    metadata = item.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _facts(path: str, item: Mapping[str, Any], reader: Reader) -> NodeFacts:
    capacity = reader.amounts(reader.at(item, path, "status.capacity"), f"{path}.status.capacity")
    for field, name in (("cpu_milli", "cpu"), ("mem_bytes", "memory")):
        if not capacity.get(field) and not reader.findings:
            reader.refuse(f"{path}.status.capacity.{name}", str(capacity.get(field)), "a quantity above 0")
    allocatable = reader.amounts(reader.at(item, path, "status.allocatable"), f"{path}.status.allocatable")
    annotations = reader.texts(reader.at(item, path, "metadata.annotations"), f"{path}.metadata.annotations")
    raw = _raw_allocatable(annotations.get(ANNOTATION_RAW_ALLOCATABLE), path, reader)
    reserved, cpus = _reservation(annotations.get(ANNOTATION_RESERVATION), path, reader)
    return NodeFacts(
        name=reader.text(item, f"{path}.metadata.name"),
        capacity=resources(capacity),
        allocatable=resources({**(allocatable or capacity), **raw}),
        reserved=reserved,
        reserved_cpus=cpus,
        labels=reader.texts(reader.at(item, path, "metadata.labels"), f"{path}.metadata.labels"),
        annotations={
            key: value for key, value in annotations.items() if f".{key.partition('/')[0]}".endswith(".koordinator.sh")
        },
        unschedulable=reader.at(item, path, "spec").get("unschedulable") is True,
    )


def _raw_allocatable(text: str | None, path: str, reader: Reader) -> Amounts:
    """What rules count by; one that cannot be read is ignored, as the reference does, and noted."""
    inner = Reader(reader.file)
    amounts: Amounts = {}
    try:
        amounts = inner.amounts(inner.mapping(json_of(text, object, where=""), ""), "") if text else {}
    except TextError as exc:
        inner.refuse("", text, f"JSON ({exc})")
    if inner.findings:
        accepted = 'JSON such as {"cpu": "4", "memory": "8Gi"}'
        reader.note(
            f'{path}.metadata.annotations["{ANNOTATION_RAW_ALLOCATABLE}"]',
            f"{shown(text)}: ignored; accepted: {accepted}",
        )
        return {}
    return {field: amount for field, amount in amounts.items() if field in {"cpu_milli", "mem_bytes"}}


def _reservation(text: str | None, path: str, reader: Reader) -> tuple[Resources, str]:
    """The annotation's amounts and CPU list; one that cannot be read is ignored, as by the reference, and reported."""
    if not text:
        return Resources(), ""
    inner = Reader(reader.file)
    try:
        body = inner.mapping(json_of(text, object, where=""), "")
    except TextError as exc:
        inner.refuse("", text, f"JSON ({exc})")
        body = {}
    amounts = inner.amounts(inner.mapping(body.get("resources"), "resources"), "resources")
    cpus = body.get("reservedCPUs") or ""
    if not isinstance(cpus, str):
        inner.refuse("reservedCPUs", cpus, "a CPU list such as 0-3,6")
    for finding in inner.findings:
        where = f'{path}.metadata.annotations["{ANNOTATION_RESERVATION}"].{finding.field}'.removesuffix(".")
        reader.note(where, f"{finding.value}: the annotation is ignored; accepted: {finding.accepted}")
    return (Resources(), "") if inner.findings else (resources(amounts), cpus)
