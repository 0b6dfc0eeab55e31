"""Workloads of a host without Kubernetes: the file of ``--host-workloads``.

A workload is a systemd unit's cgroup, or Docker containers with a label. Each matching cgroup counts as a pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import PurePosixPath
from typing import Any

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.kubernetes_fields import Reader, resources
from slacktide.schemas.qos import QOS_CLASSES

BE = "BE"
NAMESPACE = "host"
DOCKER_SOCKET = "/var/run/docker.sock"
_KEYS = ("bestEffort", "workloads", "dockerSocket")
_WORKLOAD_KEYS = ("slice", "containerLabel", "qosClass", "priority", "requests", "limits")
_NOTHING = Resources()
_KUBE_QOS = {"LSE": "Guaranteed", "LSR": "Guaranteed", BE: "BestEffort"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One entry: a cgroup or a container label, and the pod fields of matches."""

    group: PurePosixPath | None = None
    """Relative to each hierarchy."""
    label: str = ""
    """``KEY=VALUE``, or ``KEY`` for any value; "": ``group`` is given."""
    qos: str
    priority: int | None = None
    requests: Resources = _NOTHING
    limits: Resources = _NOTHING

    def __str__(self) -> str:
        return f"containerLabel {self.label}" if self.group is None else f"slice {self.group}"

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a container with these labels matches."""
        key, _, value = self.label.partition("=")
        return bool(key) and key in labels and ("=" not in self.label or labels[key] == value)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWorkloads:
    """The whole file."""

    best_effort: PurePosixPath
    """The best-effort cgroup, relative to each hierarchy. Each cgroup in it is a pod of class BE."""
    workloads: tuple[Workload, ...] = ()
    docker_socket: str = DOCKER_SOCKET

    @property
    def by_label(self) -> bool:
        """Whether Docker's labels are needed."""
        return any(one.label for one in self.workloads)

    def holds(self, group: PurePosixPath) -> bool:
        """Whether a cgroup is in the best-effort cgroup."""
        return group.is_relative_to(self.best_effort)


def parse(document: object, file: str) -> HostWorkloads:
    """Read and validate the file.

    Raises:
        ConfigError: with every finding: file, field path, value, what is accepted.
    """
    reader = Reader(file)
    body = reader.mapping(document, "content")
    _refuse_unknown(body, "", _KEYS, reader)
    best_effort = _group(body.get("bestEffort"), "bestEffort", reader)
    items = reader.sequence(body.get("workloads"), "workloads")
    workloads = tuple(
        _workload(reader.mapping(item, f"workloads[{index}]"), f"workloads[{index}]", reader)
        for index, item in enumerate(items)
    )
    socket = body.get("dockerSocket", DOCKER_SOCKET)
    if not isinstance(socket, str) or not socket.startswith("/"):
        reader.refuse("dockerSocket", socket, f"an absolute path such as {DOCKER_SOCKET}")
    found = HostWorkloads(best_effort=best_effort, workloads=workloads, docker_socket=str(socket))
    if not reader.findings:
        _refuse_overlaps(found, reader)
    if reader.findings:
        raise ConfigError(reader.findings)
    return found


def pod_of(workload: Workload | None, *, uid: str, name: str, namespace: str = NAMESPACE, held: bool) -> Pod:
    """A cgroup as a pod.

    Args:
        workload: the entry that it matches; None: it is only in the best-effort cgroup.
        uid: its stable identity.
        name: of the unit or the container.
        namespace: the compose project, if any.
        held: whether it is in the best-effort cgroup, which alone makes it best-effort.
    """
    its = workload or Workload(qos=BE)
    qos = BE if held else "LS" if its.qos == BE else its.qos
    return Pod(
        uid=uid,
        namespace=namespace,
        name=name,
        qos_label=qos,
        # A priority of another class would change its class.
        priority=its.priority if qos == its.qos else None,
        kube_qos=_KUBE_QOS.get(qos, "Burstable"),
        requests=its.requests,
        limits=its.limits,
    )


def _workload(item: Mapping[str, Any], path: str, reader: Reader) -> Workload:
    _refuse_unknown(item, f"{path}.", _WORKLOAD_KEYS, reader)
    if ("slice" in item) == ("containerLabel" in item):
        reader.refuse(path, ", ".join(map(str, item)), "either slice or containerLabel")
    label = item.get("containerLabel", "")
    if not isinstance(label, str) or ("containerLabel" in item and not label.partition("=")[0]):
        reader.refuse(f"{path}.containerLabel", label, "KEY=VALUE, or KEY for any value")
    qos = item.get("qosClass")
    if qos not in QOS_CLASSES:
        reader.refuse(f"{path}.qosClass", qos, " or ".join(QOS_CLASSES))
    return Workload(
        group=_group(item["slice"], f"{path}.slice", reader) if "slice" in item else None,
        label=str(label),
        qos=str(qos),
        priority=reader.whole(item.get("priority"), f"{path}.priority"),
        requests=_amounts(item, "requests", path, reader),
        limits=_amounts(item, "limits", path, reader),
    )


def _amounts(item: Mapping[str, Any], name: str, path: str, reader: Reader) -> Resources:
    written = reader.at(item, path, name)
    _refuse_unknown(written, f"{path}.{name}.", ("cpu", "memory"), reader)
    return resources(reader.amounts(written, f"{path}.{name}"))


def _group(value: object, path: str, reader: Reader) -> PurePosixPath:
    group = PurePosixPath(value.strip("/")) if isinstance(value, str) else PurePosixPath()
    if not group.parts or ".." in group.parts:
        reader.refuse(path, value, "a group relative to each hierarchy, such as batch.slice")
    return group


def _refuse_unknown(item: Mapping[str, Any], path: str, known: tuple[str, ...], reader: Reader) -> None:
    for key in item:
        if key not in known:
            reader.refuse(f"{path}{key}", item[key], f"no such field; there are {', '.join(known)}")


def _refuse_overlaps(found: HostWorkloads, reader: Reader) -> None:
    """Refuse nested cgroups, which would count twice, and cgroups in the best-effort cgroup with another class."""
    given = [(f"workloads[{index}].slice", one) for index, one in enumerate(found.workloads) if one.group is not None]
    for path, one in given:
        assert one.group is not None
        if found.best_effort.is_relative_to(one.group):
            reader.refuse(path, str(one.group), f"a group that does not hold bestEffort ({found.best_effort})")
        elif found.holds(one.group) and (one.qos != BE or one.group.parent != found.best_effort):
            reader.refuse(path, str(one.group), f"in bestEffort: class BE, right below {found.best_effort}")
    for (path, one), (_, other) in permutations(given, 2):
        if one.group is not None and other.group is not None and one.group.is_relative_to(other.group):
            accepted = f"each group once, and none that lies in another ({other.group} holds it)"
            reader.refuse(path, str(one.group), accepted)
