"""One pod as Kubernetes has it, from plain data."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from slacktide.schemas.allocatable import SOLD
from slacktide.schemas.bounds import COUNT_MAX, Int32, Int64
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Container as PodContainer
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes_fields import Reader, resources
from slacktide.schemas.pod_resources import Container, Needs, kube_qos, limits_of, requests_of
from slacktide.schemas.qos import LABEL_PRIORITY_CLASS, LABEL_QOS, LABEL_SUB_PRIORITY

ANNOTATION_RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""On a pod: which CPUs the scheduler bound it to."""
ANNOTATION_STATIC_UID = "kubernetes.io/config.hash"
"""On a static pod and its mirror: the uid that its cgroups are named after."""
ANNOTATION_MIRROR, ANNOTATION_SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
"""The annotations of a mirror pod, and of the source that a kubelet names: ``api``, or one of its own."""
ANNOTATION_CPU_BURST = "koordinator.sh/cpuBurst"
LABEL_EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
ANNOTATION_EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
ANNOTATION_EVICTION_POLICY = "koordinator.sh/eviction-policy"
GRACE_S = 30
RESIZABLE = frozenset({"cpu_milli", "mem_bytes"})
"""What a resize in place may change."""

T = TypeVar("T")

_QOS = ("Guaranteed", "Burstable", "BestEffort")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_CONTAINER_ID = re.compile(r"[a-z][a-z0-9.+-]*://([0-9A-Za-z][0-9A-Za-z_.-]*)")


def read_pod(item: Mapping[str, Any]) -> Pod:
    """Read a pod as Kubernetes has it. Raises BadMessageError if a field cannot be used; its path is in the text."""
    reader = Reader("pod")
    pod = pod_of("", item, reader)
    if reader.findings:
        raise BadMessageError("Pod", "; ".join(map(str, reader.findings)))
    return pod


def pod_of(path: str, item: Mapping[str, Any], reader: Reader) -> Pod:
    """Read one pod; what of it cannot be used is refused or noted by its path."""
    labels = reader.texts(reader.at(item, path, "metadata.labels"), f"{path}.metadata.labels")
    annotations = reader.texts(reader.at(item, path, "metadata.annotations"), f"{path}.metadata.annotations")
    spec, status = reader.at(item, path, "spec"), reader.at(item, path, "status")
    needs = _needs(spec, f"{path}.spec", reader, _allocated(status, f"{path}.status", reader))
    qos = status.get("qosClass")
    if qos not in (None, *_QOS):
        reader.refuse(f"{path}.status.qosClass", qos, " or ".join(_QOS))
    return Pod(
        uid=_static_uid(annotations) or reader.text(item, f"{path}.metadata.uid"),
        namespace=str(reader.at(item, path, "metadata").get("namespace") or "default"),
        name=reader.text(item, f"{path}.metadata.name"),
        phase=str(status.get("phase") or "Running"),
        qos_label=labels.get(LABEL_QOS),
        priority_class_label=labels.get(LABEL_PRIORITY_CLASS),
        priority=reader.whole(spec.get("priority"), f"{path}.spec.priority"),
        kube_qos=str(qos or kube_qos(needs)),
        requests=resources(requests_of(needs)),
        limits=resources(limits_of(needs)),
        containers=_containers(needs, _container_ids(status, f"{path}.status", reader)),
        init_unlimited=_init_unlimited(needs, _ended_inits(status, f"{path}.status", reader)),
        cpu_limited_whole=needs.pod_level is not None and bool(needs.pod_level.limits.get("cpu_milli")),
        grace_s=_grace_s(spec.get("terminationGracePeriodSeconds"), path, reader),
        **_wishes(labels, annotations, f"{path}.metadata", reader),
    )


def _static_uid(annotations: Mapping[str, str]) -> str | None:
    """None: it is no static pod, though anybody may annotate his pods as if they were."""
    static = ANNOTATION_MIRROR in annotations or annotations.get(ANNOTATION_SOURCE, "api") != "api"
    return annotations.get(ANNOTATION_STATIC_UID) if static else None


def _wishes(labels: dict[str, str], annotations: dict[str, str], path: str, reader: Reader) -> dict[str, Any]:
    """How a pod's labels and annotations want it to be treated."""

    def label(name: str) -> tuple[str | None, str, Reader]:
        return labels.get(name), f'{path}.labels["{name}"]', reader

    def annotation(name: str) -> tuple[str | None, str, Reader]:
        return annotations.get(name), f'{path}.annotations["{name}"]', reader

    number = "a whole number of 32 bits"
    return {
        "sub_priority": _annotated(*label(LABEL_SUB_PRIORITY), _int64, "a whole number of 64 bits", None),
        "cpuset": _annotated(
            *annotation(ANNOTATION_RESOURCE_STATUS), _cpuset_of, 'JSON such as {"cpuset": "0-3,6"}', ""
        ),
        "cpu_burst": annotations.get(ANNOTATION_CPU_BURST),
        "eviction_enabled": labels.get(LABEL_EVICTION_ENABLED) == "true",
        "eviction_priority": _annotated(*annotation(ANNOTATION_EVICTION_PRIORITY), _int32, number, 0),
        "eviction_features": _eviction_features(*annotation(ANNOTATION_EVICTION_POLICY)),
    }


def _annotated(text: str | None, where: str, reader: Reader, read: Callable[[str], T], accepted: str, default: T) -> T:
    """A pod's label or annotation; one that cannot be read is ignored, as by the reference, and reported."""
    try:
        return read(text) if text else default
    except (ValueError, AttributeError, msgspec.MsgspecError):
        reader.note(where, f"{text!r}: ignored; accepted: {accepted}")
        return default


def _cpuset_of(text: str) -> str:
    return msgspec.convert(msgspec.json.decode(text).get("cpuset") or "", str)


def _int32(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return msgspec.convert(int(text), Int32)


def _int64(text: str) -> int:
    return msgspec.convert(int(text), Int64)


def _eviction_features(text: str | None, where: str, reader: Reader) -> list[str] | None:
    """Only these may evict the pod. Where that cannot be read none may, as the reference has it."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=list[str] | None) or []
    except msgspec.MsgspecError:
        reader.note(where, f'{text!r}: no feature may evict the pod; accepted: JSON such as ["BEMemoryEvict"]')
        return []


def _allocated(status: Mapping[str, Any], path: str, reader: Reader) -> dict[str, Container]:
    """CPU and memory that the kubelet has allocated to each container, by name.

    They differ from the spec while a resize in place is deferred, or where the kubelet refused it.
    """
    found: dict[str, Container] = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for index, one in enumerate(reader.sequence(status.get(kind), f"{path}.{kind}")):
            each = reader.mapping(one, f"{path}.{kind}[{index}]")
            container = _container(each, f"{path}.{kind}[{index}]", reader)
            found[container.name] = container
    return found


def _needs(spec: Mapping[str, Any], path: str, reader: Reader, allocated: Mapping[str, Container]) -> Needs:
    def containers(name: str) -> list[Container]:
        found = reader.sequence(spec.get(name), f"{path}.{name}")
        desired = (_container(one, f"{path}.{name}[{index}]", reader) for index, one in enumerate(found))
        return [_held(one, allocated.get(one.name)) for one in desired]

    return Needs(
        containers=containers("containers"),
        inits=containers("initContainers"),
        overhead=reader.amounts(reader.at(spec, path, "overhead"), f"{path}.overhead"),
        pod_level=_container(spec, path, reader) if spec.get("resources") else None,
    )


def _held(desired: Container, allocated: Container | None) -> Container:
    """A container with what is allocated to it. Only CPU and memory can be resized in place."""
    if allocated is None:
        return desired
    requests = {field: amount for field, amount in allocated.requests.items() if field in RESIZABLE}
    limits = {field: amount for field, amount in allocated.limits.items() if field in RESIZABLE}
    return replace(desired, requests={**desired.requests, **requests}, limits={**desired.limits, **limits})


def _containers(needs: Needs, ids: Mapping[str, str]) -> list[PodContainer]:
    """Those that run as long as the pod does: its containers and its sidecars. One without a name is left out."""
    lasting = [*needs.containers, *(one for one in needs.inits if one.sidecar)]
    return [
        PodContainer(
            name=one.name, id=ids.get(one.name, ""), requests=resources(one.requests), limits=resources(one.limits)
        )
        for one in lasting
        if one.name
    ]


def _init_unlimited(needs: Needs, ended: Collection[str]) -> bool:
    """Whether an init container that may still run lacks a batch, mid or free limit that all containers have."""
    limited = [{field for field in SOLD if one.limits.get(field)} for one in needs.containers]
    everywhere = set[str].intersection(*limited) if limited else set()
    inits = [one for one in needs.inits if not one.sidecar and one.name not in ended]
    return any(not one.limits.get(field) for one in inits for field in everywhere)


def _ended_inits(status: Mapping[str, Any], path: str, reader: Reader) -> set[str]:
    ended: set[str] = set()
    for index, one in enumerate(reader.sequence(status.get("initContainerStatuses"), f"{path}.initContainerStatuses")):
        where = f"{path}.initContainerStatuses[{index}]"
        if reader.at(reader.mapping(one, where), where, "state").get("terminated"):
            ended.add(str(one.get("name")))
    return ended


def _container_ids(status: Mapping[str, Any], path: str, reader: Reader) -> dict[str, str]:
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


def _grace_s(value: object, path: str, reader: Reader) -> int:
    if value is None or (type(value) is int and 0 <= value < COUNT_MAX):
        return GRACE_S if value is None else value
    reader.note(f"{path}.spec.terminationGracePeriodSeconds", f"{value!r}: ignored; accepted: seconds, 0 or more")
    return GRACE_S


def _container(value: object, path: str, reader: Reader) -> Container:
    limits = reader.amounts(reader.at(value, path, "resources.limits"), f"{path}.resources.limits")
    requests = reader.amounts(reader.at(value, path, "resources.requests"), f"{path}.resources.requests")
    written = reader.mapping(value, path)
    return Container(
        name=str(written.get("name") or ""),
        # The API server fills in absent requests from the limits.
        requests={**limits, **requests},
        limits=limits,
        sidecar=written.get("restartPolicy") == "Always",
    )
