"""Options of an agent that other commands share: the source of a node's pods, its cgroups, and the API server."""

# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slacktide.deploy.runtime.process import ProcessSettings
from slacktide.deploy.runtime.settings import file, setting

if TYPE_CHECKING:  # not needed for --help
    from slacktide.agents.http import Access
    from slacktide.agents.node.cgroup.hierarchy import Hierarchy
    from slacktide.agents.node.cgroup.kernel import CgroupKernel
    from slacktide.agents.node.host_pods import HostPods
    from slacktide.agents.node.inventory import Kubelet

KUBEPODS = (
    "Control group of all pods, relative to the mount point, such as kubepods. Without it, the agent searches for it."
)
HOST_WORKLOADS = (
    "File that lists systemd slices and containers by QoS class, for a machine without Kubernetes. Reread when it "
    "changes."
)
_KUBELET = ("kubelet_token", "kubelet_ca", "kubelet_cert", "kubelet_key", "kubelet_insecure")
_OPTIONS = ("kubepods", "kubelet", *_KUBELET, "host_workloads")
API_SERVER = (
    "URL of the API server that evicts pods, such as https://10.96.0.1. Without it, an agent in a pod uses its "
    "cluster's. Outside a cluster the agent ends pods through their control groups."
)
API_TOKEN = "File with a ServiceAccount token bound to the agent's pod, read for each request. Default: the pod's own."  # noqa: S105
API_CA = (
    "File with the CA certificate of the API server. Without it: the pod's, or outside a cluster this machine's CAs."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodListSettings(ProcessSettings):
    """The source of a node's pods and cgroups."""

    kubepods: str | None = setting(KUBEPODS, default=None)
    kubelet: str | None = setting(
        "URL of the kubelet that lists the pods, such as https://127.0.0.1:10250. Without it, pods come from "
        "--inventory.",
        default=None,
    )
    kubelet_token: Path | None = setting(
        "File with a bearer token that may `get` nodes/pods. Read for each request.", file(), default=None
    )
    kubelet_ca: Path | None = setting(
        "File with the CA certificate of the kubelet. Without it, this machine's CAs.", file(), default=None
    )
    kubelet_cert: Path | None = setting("File with a client certificate for the kubelet.", file(), default=None)
    kubelet_key: Path | None = setting(
        "File with the key of --kubelet-cert. Without it, the key is in the same file.", file(), default=None
    )
    kubelet_insecure: bool = setting(
        "Do not verify the kubelet's certificate. Any server at that address then receives the token.", default=False
    )
    host_workloads: Path | None = setting(HOST_WORKLOADS, file(), default=None)

    def __post_init__(self) -> None:
        """Raise click.UsageError if options exclude or require each other."""
        further = [name for name in _KUBELET if getattr(self, name)]
        if self.kubelet is None and further:
            raise click.UsageError(f"{_flag(further[0])} requires a kubelet: give its address with --kubelet")
        if self.kubelet_key is not None and self.kubelet_cert is None:
            raise click.UsageError("--kubelet-key requires a certificate: give it with --kubelet-cert")
        if self.kubelet is not None and self.host_workloads is not None:
            raise click.UsageError(
                "--kubelet and --host-workloads exclude each other: both list the pods; remove one of both"
            )
        refuse_both(self.kubepods, self.host_workloads)

    @property
    def lister(self) -> str:
        """Return the source of pods, for messages; "": the inventory."""
        return self.kubelet or str(self.host_workloads or "")

    def arguments(self) -> list[str]:
        """Return the same settings as flags, for a child process."""
        given = [(name, getattr(self, name)) for name in _OPTIONS]
        flags = [[_flag(name)] if value is True else [_flag(name), str(value)] for name, value in given if value]
        return [text for flag in flags for text in flag]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def refuse_both(kubepods: str | None, host_workloads: Path | None) -> None:
    """Raise click.UsageError if two layouts are given at once."""
    if kubepods is not None and host_workloads is not None:
        raise click.UsageError(
            "--kubepods and --host-workloads exclude each other: --kubepods is the cgroup of a kubelet; remove one "
            "of both"
        )


def groups_of(
    cgroup_mount: Path, proc_mount: Path, kubepods: str | None, host_workloads: Path | None
) -> tuple[Hierarchy, HostPods | None]:
    """Find the cgroups; on a host without Kubernetes also the list of its pods. Raises SlacktideError."""
    from slacktide.agents.node.cgroup.hierarchy import PlainHost, find  # noqa: PLC0415
    from slacktide.agents.node.host_pods import HostPods, watch  # noqa: PLC0415

    if host_workloads is None:
        return find(cgroup_mount, kubepods), None
    watched = watch(host_workloads)
    layout = PlainHost(watched.value.best_effort)
    hierarchy = find(cgroup_mount, None, layout)
    return hierarchy, HostPods(watched, layout, hierarchy, proc_mount)


def kubelet_of(settings: PodListSettings, kernel: CgroupKernel) -> Kubelet | None:
    """Return the client of the kubelet, if it lists the pods. Raises SlacktideError if its address is invalid."""
    from slacktide.agents.http import Access  # noqa: PLC0415
    from slacktide.agents.node.inventory import Kubelet  # noqa: PLC0415

    if settings.kubelet is None:
        return None
    return Kubelet(
        Access(
            url=settings.kubelet,
            token=settings.kubelet_token,
            ca=settings.kubelet_ca,
            cert=settings.kubelet_cert,
            key=settings.kubelet_key,
            insecure=settings.kubelet_insecure,
        ),
        runs=lambda uid: kernel.pod_group(uid) is not None,  # while its cgroup exists
    )


def access_of(server: str | None, token: Path | None, ca: Path | None) -> Access | None:
    """Return access to the API server; None: there is none."""
    from slacktide.agents.http import Access  # noqa: PLC0415
    from slacktide.agents.node.apiserver import ACCOUNT, in_cluster  # noqa: PLC0415

    if server is None:
        return in_cluster(os.environ)
    own_ca = ACCOUNT / "ca.crt"
    return Access(url=server, token=token or ACCOUNT / "token", ca=ca or (own_ca if own_ca.is_file() else None))


def refuse_alone(server: str | None, token: Path | None, ca: Path | None) -> None:
    """Raise click.UsageError if a file is given without an address."""
    for flag, given in (("--api-token", token), ("--api-ca", ca)):
        if server is None and given is not None:
            raise click.UsageError(f"{flag} needs an API server: give its address with --api-server")
