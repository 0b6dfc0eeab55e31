"""Cases of the pools that pods share, and of the CPUs that a pod's containers may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Whole
from slacktide.deploy.cli.calc.cores import GivenSystemQos, GivenTopology
from slacktide.streams.decisions.cores.pools import (
    CoresPod,
    CpusetPod,
    CpusetRule,
    Kept,
    Kubelet,
    Pool,
    cpuset_of,
    handled_as,
    pools,
    unlimited,
)
from slacktide.streams.decisions.cores.take import written


class GivenKubelet(Given, frozen=True, kw_only=True):
    """The kubelet's configuration; ``queried`` false: it is not read."""

    policy: str = ""
    queried: bool = True
    reserved_system_cpus: str | None = None
    kube_reserved_cpu_milli: Amount | None = None
    system_reserved_cpu_milli: Amount | None = None

    def kubelet(self) -> Kubelet | None:
        """Convert to the rule's type."""
        if not self.queried:
            return None
        return Kubelet(
            policy=self.policy,
            reserved_system_cpus=self.reserved_system_cpus or "",
            reserved_milli=(self.kube_reserved_cpu_milli or 0) + (self.system_reserved_cpu_milli or 0),
        )


class GivenReservation(Given, frozen=True, kw_only=True):
    """The annotation reservation of a node."""

    cpu_milli: Amount | None = None
    reserved_cpus: str | None = None


class GivenPoolsPod(Given, frozen=True, kw_only=True):
    """A pod of the kubelet's list."""

    uid: str
    qos_class: str | None = None
    status_cpuset: str | None = None


class CoresPoolsInput(GivenTopology, frozen=True, kw_only=True):
    """A node and its pods."""

    pods: list[GivenPoolsPod] | None = None
    kubelet: GivenKubelet = GivenKubelet()
    cpu_manager_state: dict[str, dict[str, str]] | None = None
    node_reservation: GivenReservation | None = None
    system_qos: GivenSystemQos | None = None


def calc_cores_pools(given: CoresPoolsInput) -> Calculated:
    """Compute the CPUs that pods without CPUs of their own share."""
    topology = given.topology()
    reservation, system = given.node_reservation or GivenReservation(), given.system_qos or GivenSystemQos()
    found = pools(
        topology,
        [CoresPod(uid=one.uid, qos_label=one.qos_class, cpuset=one.status_cpuset) for one in given.pods or ()],
        given.kubelet.kubelet(),
        {uid: list(its.values()) for uid, its in (given.cpu_manager_state or {}).items()},
        Kept(
            reserved_cpus=reservation.reserved_cpus or "",
            reserved_milli=reservation.cpu_milli or 0,
            system=system.cpuset,
            system_exclusive=system.exclusive is not False,
        ),
    )
    known = {one.uid for one in given.pods or ()}
    return Calculated(
        output={
            "ls_pools": _pools(found.ls),
            "be_pools": _pools(found.be),
            "error": not topology.cpus,
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
    return [{"socket": one.socket, "numa_node": one.zone, "cpuset": one.cpuset} for one in found]


class GivenPool(Given, frozen=True, kw_only=True):
    """A pool, or an LS pool."""

    socket: Whole
    numa_node: Whole
    cpuset: str = ""

    def pool(self) -> Pool:
        """Convert to the rule's type."""
        return Pool(self.socket, self.numa_node, self.cpuset)


class GivenRuleNode(Given, frozen=True, kw_only=True):
    """The pools of a node, and its settings."""

    ls_pools: list[GivenPool] | None = None
    be_pools: list[GivenPool] | None = None
    kubelet_policy: str = ""
    system_qos: GivenSystemQos | None = None
    be_cpu_manager: bool = False
    topology_known: bool = True


class GivenStatusAmounts(Given, frozen=True, kw_only=True):
    """A pod's CPU in a zone."""

    cpu_milli: Amount | None = None
    batch_cpu_milli: Amount | None = None


class GivenStatusZone(Given, frozen=True, kw_only=True):
    """A zone of the annotation resource-status."""

    numa_node: Whole
    resources: GivenStatusAmounts | None = None

    def cpu_milli(self) -> int:
        """Return the CPU or batch-cpu in it."""
        amounts = self.resources or GivenStatusAmounts()
        return amounts.cpu_milli or amounts.batch_cpu_milli or 0


class GivenCpusetPod(Given, frozen=True, kw_only=True):
    """A pod; ``status_raw``: the text of its annotation resource-status, if it is not valid."""

    kube_qos_class: str = "BestEffort"
    qos_class: str | None = None
    status_cpuset: str | None = None
    status_raw: str | None = None
    status_zones: Annotated[list[GivenStatusZone], msgspec.Meta(max_length=1_024)] | None = None


class CoresCpusetInput(Given, frozen=True, kw_only=True):
    """A node and a pod."""

    node: GivenRuleNode
    pod: GivenCpusetPod


def calc_cores_cpuset(given: CoresCpusetInput) -> Calculated:
    """Decide which CPUs a pod's containers may use."""
    node, error = given.node, given.pod.status_raw is not None
    rule = CpusetRule(
        ls=[one.pool() for one in node.ls_pools or ()],
        be=[one.pool() for one in node.be_pools or ()],
        kubelet_policy=node.kubelet_policy,
        system=None if node.system_qos is None else node.system_qos.cpuset,
        be_cpu_manager=node.be_cpu_manager,
        topology_known=node.topology_known,
    )
    pod = CpusetPod(
        qos_label=given.pod.qos_class,
        kube_qos=given.pod.kube_qos_class,
        cpuset=given.pod.status_cpuset or "",
        zones=[(one.numa_node, one.cpu_milli()) for one in given.pod.status_zones or ()],
    )
    text = None if error else cpuset_of(pod, rule)
    return Calculated(
        output={
            "cpuset": text,
            "writes": text or None,
            "error": error,
            "handled_as": handled_as(pod),
            "unlimited_cfs_quota": not error and unlimited(pod),
            "host_app_ls_cpuset": rule.all_ls if rule.in_force else None,
            "rule_error": node.topology_known and not rule.in_force,
        },
        because=[],
    )
