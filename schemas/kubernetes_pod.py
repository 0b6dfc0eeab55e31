"""One pod as Kubernetes has it, from plain data, with the labels and annotations by which users wish it to be treated.

A label or annotation that cannot be read is ignored, with a note.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec

from slacktide.schemas.allocatable import OFFERED
from slacktide.schemas.bounds import COUNT_MAX, INT32_MAX, NODE_CHARS_MAX
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.inventory import Container as PodContainer
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes_fields import (
    Amounts,
    Container,
    Needs,
    Reader,
    kube_qos,
    limits_of,
    requests_of,
    resources,
)
from slacktide.schemas.qos import LABEL_PRIORITY_CLASS, LABEL_QOS, LABEL_SUB_PRIORITY
from slacktide.schemas.text import integer_of, json_of, shown

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""Which CPUs the scheduler bound the pod to."""
CPU_BURST = "koordinator.sh/cpuBurst"
EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
EVICTION_POLICY = "koordinator.sh/eviction-policy"
BORROWED = "quota.slacktide.io/borrowed"
"""Set by the webhook, as ``true``, on a batch pod beyond its namespace's quota."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
JOB_NAME = "batch.kubernetes.io/job-name"
"""Label that the Job controller sets on its pods."""
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
PENDING_DEADLINE = "slacktide.io/pending-deadline-seconds"
"""On a pod of a Job: it fails if it is pending for longer."""
TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods: what the name of their ReplicaSet ends with."""
ROLLOUT_HASH = "rollouts-pod-template-hash"
"""The same of an Argo Rollout's pods."""
REVISION_HASH = "controller-revision-hash"
"""Label of a StatefulSet's and a DaemonSet's pods."""
LABEL_CHARS_MAX = 63
"""Of a label's value."""
NO_SERVICES = frozenset({"Job", "Node"})
"""Kinds of controllers whose pods are no service: Jobs end, and a Node owns mirrors of static pods."""
KEPT_CHARS_MAX = 4_096
"""Each record of the pod contains these texts."""

IGNORED = "ignored"
T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
"""Within 32 bits, so that a limiter's capacity, a product of two, fits in 64 bits."""


class PodBurst(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation ``koordinator.sh/cpuBurst``. A null and an empty policy count as absent, as in the reference."""

    policy: str | None = None
    cpu_burst_percent: Number | None = None
    cfs_quota_burst_percent: Number | None = None
    cfs_quota_burst_period_seconds: Number | None = None


class _ResourceStatus(msgspec.Struct):
    cpuset: str | None = None


def cost_of(text: str) -> int:
    """Read a deletion or eviction cost. Raises TextError."""
    return integer_of(text, where="")


def index_of(text: str) -> int:
    """Read a completion index. Raises TextError."""
    return integer_of(text, where="", least=0, most=INT32_MAX)


def index_failures_of(text: str) -> int:
    """Read how often an index failed. Raises TextError."""
    return integer_of(text, where="", least=0, most=10**10 - 1)


def deadline_s_of(text: str) -> int:
    """Read a deadline in seconds. Raises TextError."""
    return integer_of(text, where="", least=1, most=INT32_MAX)


def _burst_of(text: str) -> str:
    json_of(text, PodBurst, where="")
    return _kept(text)


def _kept(text: str) -> str:
    if len(text) > KEPT_CHARS_MAX:
        raise TextError("", f"{len(text)} characters; accepted: at most {KEPT_CHARS_MAX}")
    return text


_NUMBER = "a whole number"
_ANNOTATIONS: Mapping[str, tuple[Any, ...]] = {
    RESOURCE_STATUS: (
        lambda text: _kept(json_of(text, _ResourceStatus, where="").cpuset or ""),
        'JSON such as {"cpuset": "0-3,6"}',
    ),
    CPU_BURST: (_burst_of, 'JSON such as {"policy": "auto"}'),
    EVICTION_PRIORITY: (
        lambda text: integer_of(text, where="", least=-INT32_MAX - 1, most=INT32_MAX),
        "a whole number of 32 bits",
    ),
    EVICTION_POLICY: (
        lambda text: json_of(_kept(text), list[str] | None, where="") or [],
        'JSON such as ["BEMemoryEvict"]',
        "no feature may evict the pod",
    ),
    DELETION_COST: (cost_of, _NUMBER),
    EVICTION_COST: (cost_of, _NUMBER),
    INDEX: (index_of, "a whole number of 31 bits"),
    INDEX_FAILURES: (index_failures_of, _NUMBER),
    PENDING_DEADLINE: (deadline_s_of, "whole seconds, 1 or more"),
}
_LABELS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    LABEL_SUB_PRIORITY: (lambda text: integer_of(text, where=""), "a whole number of 64 bits")
}


def wishes(labels: Mapping[str, str], annotations: Mapping[str, str], path: str, reader: Reader) -> dict[str, Any]:
    """Return the fields of ``Pod`` that they set. ``path`` of the metadata, for notes.

    Where the features that may evict it cannot be read, none may, as in the reference.
    """
    found = {
        **{key: read_mark(annotations, key, f"{path}.annotations", reader, *how) for key, how in _ANNOTATIONS.items()},
        **{key: read_mark(labels, key, f"{path}.labels", reader, *how) for key, how in _LABELS.items()},
    }
    features = found[EVICTION_POLICY]
    return {
        "sub_priority": found[LABEL_SUB_PRIORITY],
        "cpuset": found[RESOURCE_STATUS] or "",
        "cpu_burst": found[CPU_BURST],
        "eviction_enabled": labels.get(EVICTION_ENABLED) == "true",
        "eviction_priority": found[EVICTION_PRIORITY] or 0,
        "borrowed": annotations.get(BORROWED) == "true",
        "eviction_features": [] if features is None and annotations.get(EVICTION_POLICY) is not None else features,
    }


def read_mark(
    marks: Mapping[str, str],
    key: str,
    path: str,
    reader: Reader,
    read: Callable[[str], T],
    accepted: str,
    effect: str = IGNORED,
) -> T | None:
    """Read one; None: it is absent, or cannot be read, which is noted. An empty one is absent if it is ``IGNORED``."""
    text = marks.get(key)
    if text is None or (not text and effect == IGNORED):
        return None
    try:
        return read(text)
    except TextError:
        reader.note(f'{path}["{key}"]', f"{shown(text)}: {effect}; accepted: {accepted}")
        return None


ANNOTATION_STATIC_UID = "kubernetes.io/config.hash"
"""On a static pod and its mirror: the uid that its cgroups are named after."""
ANNOTATION_MIRROR, ANNOTATION_SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
"""The annotations of a mirror pod, and of the source that a kubelet names: ``api``, or one of its own."""
GRACE_S = 30
RESIZABLE = frozenset({"cpu_milli", "mem_bytes"})
"""What a resize in place may change."""

STATUSES, INIT_STATUSES = "containerStatuses", "initContainerStatuses"
_QOS = ("Guaranteed", "Burstable", "BestEffort")
_CONTAINER_ID = re.compile(r"[a-z][a-z0-9.+-]*://([0-9A-Za-z][0-9A-Za-z_.-]*)")


def read_pod(item: Mapping[str, Any], noted: Callable[[str], object] = lambda _: None) -> Pod:
    """Read a pod as Kubernetes has it. ``noted`` receives each text of ``Pod.ignored``.

    Raises:
        BadMessageError: a field cannot be used; its path is in the text.
    """
    reader = Reader("pod", of_users=True)
    pod = pod_of("", item, reader)
    if reader.findings:
        raise BadMessageError("Pod", "; ".join(map(str, reader.findings)))
    for note in pod.ignored:
        noted(note)
    return pod


def pod_of(path: str, item: Mapping[str, Any], reader: Reader) -> Pod:
    """Read one pod; what of it cannot be used is refused, or noted by its path and in the pod."""
    noted = len(reader.ignored)
    labels = reader.texts(reader.at(item, path, "metadata.labels"), f"{path}.metadata.labels")
    annotations = reader.texts(reader.at(item, path, "metadata.annotations"), f"{path}.metadata.annotations")
    spec, status = reader.at(item, path, "spec"), reader.at(item, path, "status")
    allocated = _allocated(status, f"{path}.status", reader)
    needs = _needs(spec, f"{path}.spec", reader, allocated, _allocated_whole(status, f"{path}.status", reader))
    qos = status.get("qosClass")
    if qos not in (None, *_QOS):
        reader.refuse(f"{path}.status.qosClass", qos, " or ".join(_QOS))
    # Anybody may annotate his pods as if they were static.
    static = ANNOTATION_MIRROR in annotations or annotations.get(ANNOTATION_SOURCE, "api") != "api"
    static_uid = annotations.get(ANNOTATION_STATIC_UID, "")[:NODE_CHARS_MAX] if static else ""
    pod = Pod(
        uid=static_uid or reader.text(item, f"{path}.metadata.uid"),
        namespace=str(reader.at(item, path, "metadata").get("namespace") or "default"),
        name=reader.text(item, f"{path}.metadata.name"),
        phase=str(status.get("phase") or "Running"),
        owner=owner_of(reader.at(item, path, "metadata").get("ownerReferences"), labels),
        template=next(iter(_hashes(labels, TEMPLATE_HASH, ROLLOUT_HASH, REVISION_HASH)), ""),
        qos_label=labels.get(LABEL_QOS),
        priority_class_label=labels.get(LABEL_PRIORITY_CLASS),
        priority=reader.whole(spec.get("priority"), f"{path}.spec.priority"),
        kube_qos=str(qos or kube_qos(needs)),
        requests=resources(requests_of(needs)),
        limits=resources(limits_of(needs)),
        containers=_containers(needs, _container_ids(status, f"{path}.status", reader)),
        init_unlimited=_init_unlimited(needs, status, f"{path}.status", reader),
        cpu_limited_whole=needs.pod_level is not None and bool(needs.pod_level.limits.get("cpu_milli")),
        grace_s=_grace_s(spec.get("terminationGracePeriodSeconds"), path, reader),
        **wishes(labels, annotations, f"{path}.metadata", reader),
    )
    ignored = reader.ignored_of(path, noted)
    return msgspec.structs.replace(pod, ignored=ignored) if ignored else pod


def owner_of(references: object, labels: Mapping[str, str]) -> str:
    """Return the name of the pod's controller, without the hash that a Deployment or a Rollout gives its ReplicaSets.

    "": it has none, or one of ``NO_SERVICES``. A name that cannot be used counts as none.
    """
    given = references if isinstance(references, list) else []
    controllers = [one for one in given if isinstance(one, dict) and one.get("controller") is True]
    kind, name = (controllers[0].get("kind"), controllers[0].get("name")) if controllers else ("", "")
    if not isinstance(kind, str) or not isinstance(name, str) or len(name) > NODE_CHARS_MAX or kind in NO_SERVICES:
        return ""
    ends = [f"-{one}" for one in _hashes(labels, TEMPLATE_HASH, ROLLOUT_HASH)] if kind == "ReplicaSet" else []
    return next((name.removesuffix(end) for end in ends if name.endswith(end)), name)


def _hashes(labels: Mapping[str, str], *keys: str) -> list[str]:
    """Return the values of those labels that are there. One that is too long is no label's value, and ignored."""
    return [value for key in keys if (value := labels.get(key)) and len(value) <= LABEL_CHARS_MAX]


def _allocated(status: Mapping[str, Any], path: str, reader: Reader) -> dict[str, Container]:
    """CPU and memory that the kubelet has allocated to each container, by name.

    They differ from the spec while a resize in place is deferred, or where the kubelet refused it.
    """
    found = (_container(one, where, reader) for where, one in _statuses(status, path, reader))
    return {container.name: container for container in found}


def _statuses(
    status: Mapping[str, Any], path: str, reader: Reader, kinds: Sequence[str] = (INIT_STATUSES, STATUSES)
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Statuses of containers, each with its path."""
    for kind in kinds:
        for index, one in enumerate(reader.sequence(status.get(kind), f"{path}.{kind}")):
            yield f"{path}.{kind}[{index}]", reader.mapping(one, f"{path}.{kind}[{index}]")


def _allocated_whole(status: Mapping[str, Any], path: str, reader: Reader) -> Container:
    """CPU and memory that the kubelet has allocated to a pod that requests them as a whole (KEP-5419)."""
    applied = _container(status, path, reader)
    requests = reader.amounts(reader.at(status, path, "allocatedResources"), f"{path}.allocatedResources")
    return replace(applied, requests={**applied.requests, **requests})


def _needs(
    spec: Mapping[str, Any], path: str, reader: Reader, allocated: Mapping[str, Container], allocated_whole: Container
) -> Needs:
    def containers(name: str) -> list[Container]:
        found = reader.sequence(spec.get(name), f"{path}.{name}")
        desired = (_container(one, f"{path}.{name}[{index}]", reader) for index, one in enumerate(found))
        return [_held(one, allocated.get(one.name)) for one in desired]

    return Needs(
        containers=containers("containers"),
        inits=containers("initContainers"),
        overhead=reader.amounts(reader.at(spec, path, "overhead"), f"{path}.overhead"),
        pod_level=_held_whole(_container(spec, path, reader), allocated_whole) if spec.get("resources") else None,
    )


def _held_whole(desired: Container, allocated: Container) -> Container:
    """A pod's own resources with what is allocated. Without own ones, the status has the sum of its containers."""

    def of(wanted: Amounts, given: Amounts) -> Amounts:
        return {field: given.get(field, amount) for field, amount in wanted.items()}

    return replace(
        desired, requests=of(desired.requests, allocated.requests), limits=of(desired.limits, allocated.limits)
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


def _init_unlimited(needs: Needs, status: Mapping[str, Any], path: str, reader: Reader) -> bool:
    """Whether an init container that may still run lacks a batch, mid or free limit that all containers have."""
    inits = _statuses(status, path, reader, (INIT_STATUSES,))
    ended = {str(one.get("name")) for where, one in inits if reader.at(one, where, "state").get("terminated")}
    limited = [{field for field in OFFERED if one.limits.get(field)} for one in needs.containers]
    everywhere = set[str].intersection(*limited) if limited else set()
    running = [one for one in needs.inits if not one.sidecar and one.name not in ended]
    return any(not one.limits.get(field) for one in running for field in everywhere)


def _container_ids(status: Mapping[str, Any], path: str, reader: Reader) -> dict[str, str]:
    """The runtime's id by the container's name, as far as there is one yet."""
    ids: dict[str, str] = {}
    for where, one in _statuses(status, path, reader):
        written = one.get("containerID") or ""
        match = _CONTAINER_ID.fullmatch(written) if isinstance(written, str) else None
        if match:
            ids[str(one.get("name"))] = match[1]
        elif written:
            accepted = "RUNTIME://ID such as containerd://0a1b"
            reader.note(f"{where}.containerID", f"{written!r}: ignored; accepted: {accepted}")
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
