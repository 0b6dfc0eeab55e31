"""Cases of the pools of CPUs that pods without CPUs of their own share."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Processors
from slacktide.deploy.cli.calc.cores import Corrected, CpuList, GivenSystemQos
from slacktide.deploy.cli.calc.forms import Amount, By, Form, Given, Nullable, Whole
from slacktide.streams.decisions.cores.pools import (
    CoresPod,
    CpusetPod,
    CpusetRule,
    Kept,
    Kubelet,
    Pool,
    handled_as,
    parts_of,
    pools,
    unlimited,
)
from slacktide.streams.decisions.cores.take import NO_CPUS, Cpus, Topology, read_cpus, readable, written


class GivenKubelet(Given, frozen=True, kw_only=True):
    """The kubelet's configuration; ``queried`` false: it is not read."""

    policy: str = ""
    queried: bool = True
    reserved_system_cpus: CpuList = NO_CPUS
    default_cpuset: CpuList = NO_CPUS
    options: Mapping[str, str] = {}
    kube_reserved_cpu_milli: Nullable[Amount] = 0
    system_reserved_cpu_milli: Nullable[Amount] = 0

    def kubelet(self) -> Kubelet | None:
        """Convert to the rule's type."""
        reserved_milli = self.kube_reserved_cpu_milli + self.system_reserved_cpu_milli
        found = Kubelet(
            policy=self.policy,
            reserved_system_cpus=self.reserved_system_cpus,
            reserved_milli=reserved_milli,
            strict=self.options.get("strict-cpu-reservation") == "true",
            shared=self.default_cpuset,
        )
        return found if self.queried else None


class _Reservation(Given, frozen=True, kw_only=True):
    cpu_milli: Nullable[Amount] = 0
    reserved_cpus: CpuList = NO_CPUS


NO_KUBELET, NO_RESERVATION, NO_SYSTEM = GivenKubelet(), _Reservation(), GivenSystemQos()


def calc_cores_pools(
    *,
    processors: Processors,
    pods: Nullable[Sequence[Annotated[CoresPod, Form(cpus=(CpuList, NO_CPUS))]]] = (),
    kubelet: GivenKubelet = NO_KUBELET,
    cpu_manager_state: Mapping[str, Mapping[str, str]] | None = None,
    node_reservation: Nullable[_Reservation] = NO_RESERVATION,
    system_qos: Nullable[GivenSystemQos] = NO_SYSTEM,
    corrected: Corrected = False,
) -> Calculated:
    """Compute the CPUs that pods without CPUs of their own share."""
    found = pools(
        Topology(processors, corrected=corrected),
        pods,
        kubelet.kubelet(),
        {uid: NO_CPUS.union(*map(readable, its.values())) for uid, its in (cpu_manager_state or {}).items()},
        Kept(
            reserved_cpus=node_reservation.reserved_cpus,
            reserved_milli=node_reservation.cpu_milli,
            system=readable(system_qos.cpuset),
            system_exclusive=system_qos.exclusive,
        ),
    )
    known = {one.uid for one in pods}
    return Calculated(
        output={
            "ls_pools": _pools(found.ls),
            "be_pools": _pools(found.be),
            "error": not processors,
            "kubelet_policy": found.kubelet_policy,
            "kubelet_reserved_cpus": written(found.kubelet_reserved),
            "kubelet_pod_cpus": [
                {"uid": uid, "cpuset": written(cpus), "pod_known": uid in known} for uid, cpus in found.pinned.items()
            ],
            "node_reserved_cpus": written(found.node_reserved),
        },
        because=[],
    )


def _pools(found: Sequence[Pool]) -> list[dict[str, object]]:
    return [{"socket": one.socket, "numa_node": one.zone, "cpuset": written(one.cpus)} for one in found]


_POOL = Form(strict=True, names={"cpus": "cpuset"}, cpus=(CpuList, NO_CPUS))
_POOLS = (Nullable[list[Annotated[Pool, _POOL]]], ())
_SystemCpus = Nullable[Annotated[Cpus | None, By(lambda given, _: read_cpus(given.cpuset), GivenSystemQos)]]
RuleNode = Annotated[CpusetRule, Form(strict=True, ls=_POOLS, be=_POOLS, system=(_SystemCpus, NO_CPUS))]
"""The pools of a node, and its settings."""


def _joined(parts: Sequence[Cpus], node: CpusetRule) -> str:
    """One list. The reference joins pools without CPUs, too, so that nobody can read it."""
    return written(NO_CPUS.union(*parts)) if node.corrected else ",".join(map(written, parts))


class _StatusAmounts(Given, frozen=True, kw_only=True):
    cpu_milli: Nullable[Amount] = 0
    batch_cpu_milli: Nullable[Amount] = 0


class _StatusZone(Given, frozen=True, kw_only=True):
    numa_node: Whole
    resources: Nullable[_StatusAmounts] = _StatusAmounts()


class GivenCpusetPod(Given, frozen=True, kw_only=True):
    """A pod; ``status_raw``: the text of its annotation resource-status, if it is not valid."""

    kube_qos: str = "BestEffort"
    qos_label: str | None = None
    status_cpuset: Nullable[str] = ""
    status_raw: str | None = None
    container_count: Whole = 1
    status_zones: Nullable[Annotated[list[_StatusZone], msgspec.Meta(max_length=1_024)]] = []


def calc_cores_cpuset(*, node: RuleNode, pod: GivenCpusetPod) -> Calculated:
    """Decide which CPUs a pod's containers may use."""
    error = pod.status_raw is not None
    zones = [(one.numa_node, one.resources.cpu_milli or one.resources.batch_cpu_milli) for one in pod.status_zones]
    whom = CpusetPod(
        qos_label=pod.qos_label,
        kube_qos=pod.kube_qos,
        cpus=readable(pod.status_cpuset) if pod.status_cpuset else None,
        zones=zones,
        container_count=pod.container_count,
    )
    parts = None if error else parts_of(whom, node)
    text = None if parts is None else pod.status_cpuset or _joined(parts, node) or (None if node.corrected else "")
    return Calculated(
        output={
            "cpuset": text,
            "writes": text or None,
            "error": error,
            "handled_as": handled_as(whom),
            "unlimited_cfs_quota": not error and unlimited(whom, corrected=node.corrected),
            "host_app_ls_cpuset": _joined([pool.cpus for pool in node.ls], node) if node.in_force else None,
            "rule_error": node.topology_known and not node.in_force,
        },
        because=[],
    )
