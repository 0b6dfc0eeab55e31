"""Cases of the rules of CPU suppression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, Percent, Whole, figure, unique
from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import NodeFacts, Processor, Resources
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cpu_list import CPU_ID_MAX, cpu_list
from slacktide.streams.decisions.resources.node_load import node_reserved
from slacktide.streams.decisions.suppress.cpu_pressure import fold
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import (
    CPUS_MIN,
    NodeCpus,
    PinnedPod,
    next_be_cpuset,
    pick_cpus,
)
from slacktide.streams.decisions.suppress.cpu_suppress_quota import CpuUse, be_allowed_cpu, next_cfs_quota


def distinct(processors: Sequence[Processor]) -> Sequence[Processor]:
    """Return the processors unchanged, if each CPU occurs once."""
    unique((one.cpu for one in processors), "input.processors[{}].cpu", "CPU {} is given twice")
    return processors


ADDS = ("+ceiling_milli", "-nonbe_pods_milli", "-nonbe_hosts_milli", "-system_milli")


class Reserved(Given, frozen=True, kw_only=True):
    """Annotation node.koordinator.sh/reservation."""

    cpu_milli: Amount | None = None
    reserved_cpus: str | None = None


class Used(Given, frozen=True, kw_only=True):
    """The classes and use of a pod, or of an application outside Kubernetes, which has a ``cgroup_base``."""

    qos_class: str | None = None
    kube_qos_class: str | None = None
    cgroup_base: str | None = None
    cpu_usage_cores: Cores | None = None

    def use(self, *, best_effort: bool = False) -> CpuUse:
        """Convert to the rule's type."""
        return CpuUse(used_cores=self.cpu_usage_cores, best_effort=best_effort)


class CpuSuppressAllowedInput(Given, frozen=True, kw_only=True):
    """A node, its pods and host applications, and the threshold."""

    node_capacity_cpu_milli: Amount
    node_allocatable_cpu_milli: Amount
    reserved: Reserved | None = None
    node_cpu_usage_cores: Cores
    pods: list[Used] | None = None
    pod_metrics_without_pod: list[Used] | None = None
    host_apps: list[Used] | None = None
    threshold_percent: Percent
    min_percent: Percent | None = None


def calc_cpu_suppress_allowed(given: CpuSuppressAllowedInput) -> Calculated:
    """Compute the CPU limit of best-effort pods."""
    reserved = given.reserved or Reserved()
    facts = NodeFacts(
        name="",
        capacity=Resources(cpu_milli=given.node_capacity_cpu_milli),
        allocatable=Resources(cpu_milli=given.node_allocatable_cpu_milli),
        reserved=Resources(cpu_milli=reserved.cpu_milli),
        reserved_cpus=reserved.reserved_cpus or "",
    )
    allowed = be_allowed_cpu(
        capacity_milli=given.node_capacity_cpu_milli,
        reserved_milli=node_reserved(facts).cpu_milli or 0,
        node_used_cores=given.node_cpu_usage_cores,
        pods=[
            *(
                pod.use(best_effort=raw_qos(pod.qos_class) == "BE" or pod.kube_qos_class == "BestEffort")
                for pod in given.pods or ()
            ),
            *(pod.use() for pod in given.pod_metrics_without_pod or ()),
        ],
        hosts=[
            app.use(best_effort=app.qos_class == "BE" and app.cgroup_base == "KubepodsBesteffort")
            for app in given.host_apps or ()
        ],
        threshold_pct=given.threshold_percent,
        min_pct=given.min_percent,
    )
    return Calculated(
        output={"be_allowed_cpu_milli": allowed.allowed_milli},
        because=[Because(of="be_allowed_cpu_milli", bound=allowed.bound, terms=allowed.terms, adds=ADDS)],
    )


class CpuSuppressCfsQuotaInput(Given, frozen=True, kw_only=True):
    """The CPU limit, and the quota in force; -1: unlimited."""

    be_allowed_cpu_milli: Whole
    current_be_cfs_quota_us: Whole
    node_capacity_cpu_milli: Amount


def calc_cpu_suppress_cfs_quota(given: CpuSuppressCfsQuotaInput) -> Calculated:
    """Compute the next CFS quota of the best-effort cgroup."""
    step = next_cfs_quota(
        allowed_milli=given.be_allowed_cpu_milli,
        current_us=None if given.current_be_cfs_quota_us == -1 else given.current_be_cfs_quota_us,
        capacity_milli=given.node_capacity_cpu_milli,
    )
    return figure("be_cfs_quota_us", step.quota_us, step)


class CpuSuppressCpusetPickInput(Given, frozen=True, kw_only=True):
    """The number of CPUs to pick, and the processors."""

    cpus_wanted: Whole
    processors: list[Processor] | None


def calc_cpu_suppress_cpuset_pick(given: CpuSuppressCpusetPickInput) -> Calculated:
    """Pick CPUs, in order."""
    picked = pick_cpus(given.cpus_wanted, distinct(given.processors or ()))
    return figure("cpus_in_pick_order", list(picked.cpus), picked)


class GivenPinnedPod(Given, frozen=True, kw_only=True):
    """A pod's class and its CPU list."""

    qos_class: str | None = None
    cpuset: str | None = None


class CpuSuppressCpusetInput(Given, frozen=True, kw_only=True):
    """The CPU limit, the CPU set in force, and the node's CPUs."""

    be_allowed_cpu_milli: Whole
    current_be_cpuset: list[Amount] | None = None
    processors: list[Processor] | None
    pods_with_cpuset: list[GivenPinnedPod] | None = None
    reserved_cpus: str | None = None
    system_qos_cpus: str | None = None
    system_qos_exclusive: bool | None = None
    cpus_min: Annotated[int, msgspec.Meta(ge=1, le=CPU_ID_MAX)] | None = None
    """The minimum number of CPUs; the reference always uses 2."""


def calc_cpu_suppress_cpuset(given: CpuSuppressCpusetInput) -> Calculated:
    """Compute the next CPU set of the best-effort cgroup."""
    node = NodeCpus(
        processors=distinct(given.processors or ()),
        reserved=_cpus(given.reserved_cpus, "input.reserved_cpus"),
        system=_cpus(given.system_qos_cpus, "input.system_qos_cpus"),
        system_exclusive=given.system_qos_exclusive is not False,
    )
    step = next_be_cpuset(
        allowed_milli=given.be_allowed_cpu_milli,
        current=given.current_be_cpuset or (),
        node=node,
        pods=_pinned(given.pods_with_cpuset or ()),
        cpus_min=CPUS_MIN if given.cpus_min is None else given.cpus_min,
    )
    return figure("be_cpuset", list(step.cpus), step)


def _pinned(pods: Sequence[GivenPinnedPod]) -> Iterator[PinnedPod]:
    """Yield pods one by one, so that only one long list is in memory."""
    for at, pod in enumerate(pods):
        yield PinnedPod(qos_label=pod.qos_class, cpus=_cpus(pod.cpuset, f"input.pods_with_cpuset[{at}].cpuset"))


def _cpus(text: str | None, field: str) -> list[int]:
    cpus = cpu_list(text or "")
    if cpus is None:
        raise CaseError(field, f"not a CPU list such as 0-3,6 with ids up to {CPU_ID_MAX}")
    return cpus


class CpuPressureInput(Given, frozen=True, kw_only=True):
    """The gate of a sample, the measurements since, and the node."""

    node_capacity_cpu_milli: Amount
    gate: PressureGate = PressureGate()
    looks: Annotated[list[PressureLook], msgspec.Meta(max_length=LOOKS_MAX)]


def calc_cpu_pressure(given: CpuPressureInput) -> Calculated:
    """Compute the gate after the newest measurement."""
    step = fold(LsPressure(gate=given.gate, looks=given.looks), given.node_capacity_cpu_milli)
    return figure("gate", msgspec.structs.asdict(step.gate), step)
