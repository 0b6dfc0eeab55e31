"""What Kubernetes says of one node and its pods, from plain data as ``kubectl get node,pods -o yaml`` prints it.

Written by hand it may leave out what a running cluster fills in: status of pods, requests that equal limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, TypeVar

import msgspec

from slacktide.schemas.errors import ConfigError, Finding, QuantityError
from slacktide.schemas.inventory import Container as PodContainer
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.pod_resources import Amounts, Container, Needs, kube_qos, limits_of, requests_of
from slacktide.schemas.qos import LABEL_PRIORITY_CLASS, LABEL_QOS, LABEL_SUB_PRIORITY
from slacktide.schemas.units import quantity

ANNOTATION_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""On a pod: which CPUs the scheduler bound it to."""
ANNOTATION_STATIC_UID = "kubernetes.io/config.hash"
"""On the mirror of a static pod: the uid that its cgroups are named after."""
ANNOTATION_CPU_BURST = "koordinator.sh/cpuBurst"
LABEL_EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
ANNOTATION_EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
ANNOTATION_EVICTION_POLICY = "koordinator.sh/eviction-policy"
GRACE_S = 30

T = TypeVar("T")
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_FIELDS = {
    "cpu": "cpu_milli",
    "memory": "mem_bytes",
    "kubernetes.io/batch-cpu": "batch_cpu_milli",
    "kubernetes.io/batch-memory": "batch_mem_bytes",
    "kubernetes.io/mid-cpu": "mid_cpu_milli",
    "kubernetes.io/mid-memory": "mid_mem_bytes",
    "kubernetes.io/free-cpu": "free_cpu_milli",
    "kubernetes.io/free-memory": "free_mem_bytes",
    "koordinator.sh/batch-cpu": "batch_cpu_milli",
    "koordinator.sh/batch-memory": "batch_mem_bytes",
    "koordinator.sh/mid-cpu": "mid_cpu_milli",
    "koordinator.sh/mid-memory": "mid_mem_bytes",
}
_QUANTITY = "a Kubernetes quantity, 0 or more, such as 500m, 2 or 4Gi"
_QOS = ("Guaranteed", "Burstable", "BestEffort")
_CONTAINER_ID = re.compile(r"[a-z][a-z0-9.+-]*://([0-9A-Za-z][0-9A-Za-z_.-]*)")
FINDINGS_MAX = 20
AMOUNT_MAX = 2**53
"""Readers in other languages keep numbers below this exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One node as its inventory describes it, and what of that could not be used."""

    facts: NodeFacts
    pods: list[Pod]
    notes: tuple[str, ...]


def described(document: object, file: str, node: str | None = None) -> Described:
    """Read and validate an inventory.

    Args:
        document: a ``List`` of Nodes and Pods as plain data.
        file: its name, for messages.
        node: whose facts and pods are wanted; None: there is only one Node.

    Raises:
        ConfigError: with every finding (20 at most): file, field path, value, what is accepted.

    """
    reader = _Reader(file)
    items = _items(document, reader)
    nodes = {reader.text(item, f"{path}.metadata.name"): (path, item) for path, item in items if _kind(item) == "Node"}
    name = node if node is not None else _only(list(nodes), reader)
    if name not in nodes:
        reader.refuse("items", f"no Node {name}", "a List that holds this Node")
        raise ConfigError(reader.findings)
    facts = _facts(*nodes[name], reader)
    pods = [_pod(path, item, reader) for path, item in items if _kind(item) == "Pod" and _is_on(item, name)]
    reader.tell_twice("items[].metadata.uid", [pod.uid for pod in pods])
    other = sorted({_kind(item) for _, item in items} - {"Node", "Pod"})
    reader.notes += [f"{file}: items of kind {kind} are not read" for kind in other]
    if reader.findings:
        raise ConfigError(reader.findings[:FINDINGS_MAX])
    return Described(facts=facts, pods=pods, notes=tuple(reader.notes))


class _Reader:
    """Reads values at paths, gathering what is wrong with them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self.notes: list[str] = []

    def refuse(self, field: str, value: object, accepted: str) -> None:
        text = value if isinstance(value, str) else repr(value)
        self.findings.append(Finding(file=self.file, field=field, value=text[:80], accepted=accepted))

    def mapping(self, value: object, path: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(path, value, "a map")
            return {}
        return value

    def sequence(self, value: object, path: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(path, value, "a list")
            return []
        return value

    def at(self, item: object, path: str, names: str) -> Mapping[str, Any]:
        """A map some levels down, e.g. ``status.capacity``; absent is empty."""
        for name in names.split("."):
            item, path = self.mapping(item, path).get(name), f"{path}.{name}"
        return self.mapping(item, path)

    def text(self, item: object, path: str) -> str:
        """The text at the path's last two names, such as ``metadata.name``; it has to be there."""
        where, parent, name = path.rsplit(".", 2)
        value = self.at(item, where, parent).get(name)
        if not isinstance(value, str) or not value:
            self.refuse(path, value, "a text")
            return ""
        return value

    def texts(self, value: Mapping[str, Any], path: str) -> dict[str, str]:
        """Labels or annotations."""
        for key, one in value.items():
            if not isinstance(one, str):
                self.refuse(f'{path}["{key}"]', one, "a text (in quotes)")
        return {str(key): one for key, one in value.items() if isinstance(one, str)}

    def whole(self, value: object, path: str) -> int | None:
        if value is None or (type(value) is int and abs(value) < AMOUNT_MAX):
            return value
        self.refuse(path, value, "a whole number")
        return None

    def note(self, path: str, text: str) -> None:
        self.notes.append(f"{self.file}: {path}: {text}")

    def amounts(self, value: Mapping[str, Any], path: str) -> Amounts:
        """Quantities of the resources that are read; the first name of a resource wins."""
        found: dict[str, Decimal] = {}
        for name, field in _FIELDS.items():
            if name not in value or field in found:
                continue
            try:
                amount = quantity(value[name])
            except QuantityError:
                amount = Decimal(-1)
            if 0 <= amount < AMOUNT_MAX:
                found[field] = amount
            else:
                self.refuse(f"{path}.{name}", value[name], _QUANTITY)
        return found

    def tell_twice(self, path: str, values: Sequence[str]) -> None:
        for value in sorted({value for value in values if value and values.count(value) > 1}):
            self.refuse(path, value, "each once")


def _items(document: object, reader: _Reader) -> list[tuple[str, Mapping[str, Any]]]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != "List":
        reader.refuse("kind", kind, '"List", as kubectl get node,pods -o yaml prints it')
        raise ConfigError(reader.findings)
    items = reader.sequence(reader.mapping(document, "").get("items"), "items")
    paths = [(f"items[{index}]", reader.mapping(item, f"items[{index}]")) for index, item in enumerate(items)]
    reader.tell_twice(
        "items[].metadata.name", [str(_name(item)) for _, item in paths if _kind(item) == "Node" and _name(item)]
    )
    return paths


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("kind"))


def _name(item: Mapping[str, Any]) -> object:
    metadata = item.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _only(names: list[str], reader: _Reader) -> str:
    if len(names) != 1:
        reader.refuse("items", f"{len(names)} Nodes", "one Node, or a node name that says which")
        raise ConfigError(reader.findings)
    return names[0]


def _is_on(item: Mapping[str, Any], node: str) -> bool:
    """A pod without a node's name belongs to whichever node the list is for."""
    spec = item.get("spec")
    return not isinstance(spec, dict) or spec.get("nodeName") in (None, "", node)


def _facts(path: str, item: Mapping[str, Any], reader: _Reader) -> NodeFacts:
    capacity = reader.amounts(reader.at(item, path, "status.capacity"), f"{path}.status.capacity")
    for field, name in (("cpu_milli", "cpu"), ("mem_bytes", "memory")):
        if not capacity.get(field) and not reader.findings:
            reader.refuse(f"{path}.status.capacity.{name}", str(capacity.get(field)), "a quantity above 0")
    allocatable = reader.amounts(reader.at(item, path, "status.allocatable"), f"{path}.status.allocatable")
    annotations = reader.texts(reader.at(item, path, "metadata.annotations"), f"{path}.metadata.annotations")
    reserved, cpus = _reservation(annotations.get(ANNOTATION_RESERVATION), path, reader)
    return NodeFacts(
        name=reader.text(item, f"{path}.metadata.name"),
        capacity=_resources(capacity),
        allocatable=_resources(allocatable or capacity),
        reserved=reserved,
        reserved_cpus=cpus,
        labels=reader.texts(reader.at(item, path, "metadata.labels"), f"{path}.metadata.labels"),
        annotations={key: value for key, value in annotations.items() if _is_koordinators(key)},
    )


def _is_koordinators(key: str) -> bool:
    domain = key.partition("/")[0]
    return domain == "koordinator.sh" or domain.endswith(".koordinator.sh")


def _reservation(text: str | None, path: str, reader: _Reader) -> tuple[Resources, str]:
    """The annotation's amounts and CPU list; one that cannot be read is ignored, as the reference does, and said."""
    if not text:
        return Resources(), ""
    inner = _Reader(reader.file)
    try:
        body = inner.mapping(msgspec.json.decode(text), "")
    except msgspec.DecodeError as exc:
        inner.refuse("", text, f"JSON ({exc})")
        body = {}
    amounts = inner.amounts(inner.mapping(body.get("resources"), "resources"), "resources")
    cpus = body.get("reservedCPUs") or ""
    if not isinstance(cpus, str):
        inner.refuse("reservedCPUs", cpus, "a CPU list such as 0-3,6")
    for finding in inner.findings:
        where = f'{path}.metadata.annotations["{ANNOTATION_RESERVATION}"].{finding.field}'
        reader.note(where, f"{finding.value}: the annotation is ignored; accepted: {finding.accepted}")
    return (Resources(), "") if inner.findings else (_resources(amounts), cpus)


def _pod(path: str, item: Mapping[str, Any], reader: _Reader) -> Pod:
    labels = reader.texts(reader.at(item, path, "metadata.labels"), f"{path}.metadata.labels")
    annotations = reader.texts(reader.at(item, path, "metadata.annotations"), f"{path}.metadata.annotations")
    spec, status = reader.at(item, path, "spec"), reader.at(item, path, "status")
    needs = _needs(spec, f"{path}.spec", reader)
    qos = status.get("qosClass")
    if qos not in (None, *_QOS):
        reader.refuse(f"{path}.status.qosClass", qos, " or ".join(_QOS))
    return Pod(
        uid=annotations.get(ANNOTATION_STATIC_UID) or reader.text(item, f"{path}.metadata.uid"),
        namespace=str(reader.at(item, path, "metadata").get("namespace") or "default"),
        name=reader.text(item, f"{path}.metadata.name"),
        phase=str(status.get("phase") or "Running"),
        qos_label=labels.get(LABEL_QOS),
        priority_class_label=labels.get(LABEL_PRIORITY_CLASS),
        priority=reader.whole(spec.get("priority"), f"{path}.spec.priority"),
        kube_qos=str(qos or kube_qos(needs)),
        requests=_resources(requests_of(needs)),
        limits=_resources(limits_of(needs)),
        containers=_containers(spec, needs, _container_ids(status, f"{path}.status", reader)),
        grace_s=_grace_s(spec.get("terminationGracePeriodSeconds"), path, reader),
        **_wishes(labels, annotations, f"{path}.metadata", reader),
    )


def _wishes(labels: dict[str, str], annotations: dict[str, str], path: str, reader: _Reader) -> dict[str, Any]:
    """What a pod's labels and annotations say of how it wants to be treated."""

    def label(name: str) -> tuple[str | None, str, _Reader]:
        return labels.get(name), f'{path}.labels["{name}"]', reader

    def annotation(name: str) -> tuple[str | None, str, _Reader]:
        return annotations.get(name), f'{path}.annotations["{name}"]', reader

    number = "a whole number of 32 bits"
    return {
        "sub_priority": _annotated(*label(LABEL_SUB_PRIORITY), int, "a whole number", None),
        "cpuset": _annotated(
            *annotation(ANNOTATION_RESOURCE_STATUS), _cpuset_of, 'JSON such as {"cpuset": "0-3,6"}', ""
        ),
        "cpu_burst": annotations.get(ANNOTATION_CPU_BURST),
        "eviction_enabled": labels.get(LABEL_EVICTION_ENABLED) == "true",
        "eviction_priority": _annotated(*annotation(ANNOTATION_EVICTION_PRIORITY), _priority_of, number, 0),
        "eviction_features": _eviction_features(*annotation(ANNOTATION_EVICTION_POLICY)),
    }


def _annotated(text: str | None, where: str, reader: _Reader, read: Callable[[str], T], accepted: str, default: T) -> T:
    """What a pod's label or annotation says; one that cannot be read is ignored, as the reference does, and said."""
    try:
        return read(text) if text else default
    except (ValueError, AttributeError, msgspec.MsgspecError):
        reader.note(where, f"{text!r}: ignored; accepted: {accepted}")
        return default


def _cpuset_of(text: str) -> str:
    return msgspec.convert(msgspec.json.decode(text).get("cpuset") or "", str)


def _priority_of(text: str) -> int:
    return msgspec.json.decode(text.removeprefix("+"), type=Int32)


def _eviction_features(text: str | None, where: str, reader: _Reader) -> list[str] | None:
    """Only these may evict the pod. Where that cannot be read none may, as the reference has it."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=list[str] | None) or []
    except msgspec.MsgspecError:
        reader.note(where, f'{text!r}: no feature may evict the pod; accepted: JSON such as ["BEMemoryEvict"]')
        return []


def _needs(spec: Mapping[str, Any], path: str, reader: _Reader) -> Needs:
    def containers(name: str) -> list[Container]:
        found = reader.sequence(spec.get(name), f"{path}.{name}")
        return [_container(one, f"{path}.{name}[{index}]", reader) for index, one in enumerate(found)]

    return Needs(
        containers=containers("containers"),
        inits=containers("initContainers"),
        overhead=reader.amounts(reader.at(spec, path, "overhead"), f"{path}.overhead"),
        pod_level=_container(spec, path, reader) if spec.get("resources") else None,
    )


def _containers(spec: Mapping[str, Any], needs: Needs, ids: Mapping[str, str]) -> list[PodContainer]:
    """Those that run as long as the pod does: its containers and its sidecars. One without a name is left out."""
    sidecars = [(one, need) for one, need in _pairs(spec.get("initContainers"), needs.inits) if need.sidecar]
    named = [
        (one["name"], need)
        for one, need in [*_pairs(spec.get("containers"), needs.containers), *sidecars]
        if isinstance(one.get("name"), str) and one["name"]
    ]
    return [
        PodContainer(
            name=name,
            id=ids.get(name, ""),
            requests=_resources(need.requests),
            limits=_resources(need.limits),
        )
        for name, need in named
    ]


def _pairs(items: object, needs: list[Container]) -> list[tuple[Mapping[str, Any], Container]]:
    """Containers as written beside what was read of them; what is not as it should be was refused already."""
    listed = items if isinstance(items, list) else []
    return [(one, need) for one, need in zip(listed, needs, strict=False) if isinstance(one, dict)]


def _container_ids(status: Mapping[str, Any], path: str, reader: _Reader) -> dict[str, str]:
    """The runtime's id by the container's name, as far as there is one yet."""
    ids: dict[str, str] = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for index, one in enumerate(reader.sequence(status.get(kind), f"{path}.{kind}")):
            state = reader.mapping(one, f"{path}.{kind}[{index}]")
            written = state.get("containerID") or ""
            match = _CONTAINER_ID.fullmatch(written) if isinstance(written, str) else None
            if match:
                ids[str(state.get("name"))] = match[1]
            elif written:
                where = f"{path}.{kind}[{index}].containerID"
                reader.note(where, f"{written!r}: ignored; accepted: RUNTIME://ID such as containerd://0a1b")
    return ids


def _grace_s(value: object, path: str, reader: _Reader) -> int:
    if value is None or (type(value) is int and 0 <= value < AMOUNT_MAX):
        return GRACE_S if value is None else value
    reader.note(f"{path}.spec.terminationGracePeriodSeconds", f"{value!r}: ignored; accepted: seconds, 0 or more")
    return GRACE_S


def _container(value: object, path: str, reader: _Reader) -> Container:
    limits = reader.amounts(reader.at(value, path, "resources.limits"), f"{path}.resources.limits")
    requests = reader.amounts(reader.at(value, path, "resources.requests"), f"{path}.resources.requests")
    sidecar = reader.mapping(value, path).get("restartPolicy") == "Always"
    # The API server fills in absent requests from the limits.
    return Container(requests={**limits, **requests}, limits=limits, sidecar=sidecar)


def _resources(amounts: Amounts) -> Resources:
    def rounded(field: str) -> int | None:
        amount = amounts.get(field)
        scale = 1000 if field == "cpu_milli" else 1
        return None if amount is None else int((amount * scale).to_integral_value(ROUND_CEILING))

    return Resources(**{field: rounded(field) for field in dict.fromkeys(_FIELDS.values())})
