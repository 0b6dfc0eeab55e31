"""Finds the cgroups of a pod's containers by the ids in the pod list."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.schemas.inventory import Pod

_BY_CGROUPFS = ("{}", "crio-{}")
_BY_SYSTEMD = ("cri-containerd-{}.scope", "crio-{}.scope", "docker-{}.scope")


def names_of(container_id: str, *, systemd: bool) -> tuple[str, ...]:
    """Return names that containerd, CRI-O and Docker may give a container's cgroup. Only whole names match. Pure."""
    return tuple(name.format(container_id) for name in (_BY_SYSTEMD if systemd else _BY_CGROUPFS))


def container_groups(hierarchy: Hierarchy, root: Path, pod_group: PurePosixPath, pod: Pod) -> dict[str, PurePosixPath]:
    """Return existing cgroups of a pod's containers, by container name. Containers without an id are not found."""
    found: dict[str, PurePosixPath] = {}
    for container in pod.containers:
        names = names_of(container.id, systemd=hierarchy.by_systemd) if container.id else ()
        group = next((pod_group / name for name in names if (root / pod_group / name).is_dir()), None)
        if group is not None:
            found[container.name] = group
    return found
