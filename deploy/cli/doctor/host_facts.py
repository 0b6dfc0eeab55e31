"""Finds the workloads of a machine without Kubernetes, as an agent would."""

from __future__ import annotations

from pathlib import Path

from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.agents.node.cgroup.layout import PlainHost
from slacktide.agents.node.pods.host_pods import HostPods, watch
from slacktide.deploy.cli.doctor.facts import HostFacts
from slacktide.schemas.errors import CgroupError, ConfigError


def gather(file: Path, cgroup_mount: Path, proc_mount: Path) -> HostFacts | ConfigError:
    """Inspect cgroups and Docker's list, read-only. Without cgroups no workload is found."""
    try:
        watched = watch(file)
    except ConfigError as error:
        return error
    layout = PlainHost(watched.value.best_effort)
    try:
        hierarchy = find(cgroup_mount, None, layout)
    except CgroupError:  # which is reported of control groups, too
        return HostFacts(file=str(file), best_effort=layout.best_effort, pods=(), remarks=())
    host = HostPods(watched, layout, hierarchy, proc_mount)
    pods = tuple(f"{pod.name} ({pod.qos_label})" for pod in host.look().pods)
    return HostFacts(file=str(file), best_effort=layout.best_effort, pods=pods, remarks=tuple(host.remarks))
