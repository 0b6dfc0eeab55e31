"""Which groups below a pod's are its containers', by the ids in the pod list."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.schemas.inventory import Pod

_BY_CGROUPFS = ("{}", "crio-{}")
_BY_SYSTEMD = ("cri-containerd-{}.scope", "crio-{}.scope", "docker-{}.scope")


def names_of(container_id: str, *, systemd: bool) -> tuple[str, ...]:
    """What containerd, CRI-O and Docker may call a container's group. Pure.

    Only whole names count: ``crio-conmon-ID``, a sandbox (the pod list names none) and whatever else lies beside a
    container is never taken for one.
    """
    return tuple(name.format(container_id) for name in (_BY_SYSTEMD if systemd else _BY_CGROUPFS))


def container_groups(hierarchy: Hierarchy, root: Path, pod_group: PurePosixPath, pod: Pod) -> dict[str, PurePosixPath]:
    """The groups of a pod's containers that are there now, by the container's name.

    Args:
        hierarchy: shows who names the groups.
        root: of the controller that is looked at, such as ``hierarchy.cpu``.
        pod_group: the pod's group relative to ``root``.
        pod: names its containers and their ids; one without an id cannot be found.

    """
    found: dict[str, PurePosixPath] = {}
    for container in pod.containers:
        names = names_of(container.id, systemd=hierarchy.by_systemd) if container.id else ()
        group = next((pod_group / name for name in names if (root / pod_group / name).is_dir()), None)
        if group is not None:
            found[container.name] = group
    return found
