"""Cases of the rules of CPU suppression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Processors, figure
from slacktide.deploy.cli.calc.forms import Amount, By, Cores, Given, Nullable, Percent, Whole
from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cpu_list import CPU_ID_MAX, cpu_list
from slacktide.streams.decisions.resources.node_load import node_reserved
from slacktide.streams.decisions.suppress.cpu_pressure import fold
from slacktide.streams.decisions.suppress.cpu_suppress_allowed import CpuUse, be_allowed_cpu
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import next_cfs_quota
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import (
    CPUS_MIN,
    NodeCpus,
    PinnedPod,
    next_be_cpuset,
    pick_cpus,
)

OPEN = PressureGate()
ADDS = ("+ceiling_milli", "-nonbe_pods_milli", "-nonbe_hosts_milli", "-system_milli")


class Reserved(Given, frozen=True, kw_only=True):
    """Annotation node.koordinator.sh/reservation."""

    cpu_milli: Amount | None = None
    reserved_cpus: Nullable[str] = ""


class Used(Given, frozen=True, kw_only=True):
    """The classes and use of a pod, or of an application outside Kubernetes, which has a ``cgroup_base``."""

    qos_label: str | None = None
    kube_qos: str | None = None
    cgroup_base: str | None = None
    used_cores: Cores | None = None


class CpuSuppressAllowedInput(Given, frozen=True, kw_only=True):
    """A node, its pods and host applications, and the threshold."""

    node_capacity_cpu_milli: Amount
    node_allocatable_cpu_milli: Amount
    reserved: Nullable[Reserved] = Reserved()
    node_cpu_usage_cores: Cores
    pods: Nullable[list[Used]] = []
    pod_metrics_without_pod: Nullable[list[Used]] = []
    host_apps: Nullable[list[Used]] = []
    threshold_pct: Percent
    min_pct: Percent | None = None


def calc_cpu_suppress_allowed(given: CpuSuppressAllowedInput) -> Calculated:
    """Compute the CPU limit of best-effort pods."""
    facts = NodeFacts(
        name="",
        capacity=Resources(cpu_milli=given.node_capacity_cpu_milli),
        allocatable=Resources(cpu_milli=given.node_allocatable_cpu_milli),
        reserved=Resources(cpu_milli=given.reserved.cpu_milli),
        reserved_cpus=given.reserved.reserved_cpus,
    )
    pods = [
        CpuUse(pod.used_cores, best_effort=raw_qos(pod.qos_label) == "BE" or pod.kube_qos == "BestEffort")
        for pod in given.pods
    ]
    allowed = be_allowed_cpu(
        capacity_milli=given.node_capacity_cpu_milli,
        reserved_milli=node_reserved(facts).cpu_milli or 0,
        node_used_cores=given.node_cpu_usage_cores,
        pods=[*pods, *(CpuUse(pod.used_cores, best_effort=False) for pod in given.pod_metrics_without_pod)],
        hosts=[
            CpuUse(app.used_cores, best_effort=app.qos_label == "BE" and app.cgroup_base == "KubepodsBesteffort")
            for app in given.host_apps
        ],
        threshold_pct=given.threshold_pct,
        min_pct=given.min_pct,
    )
    return Calculated(
        output={"be_allowed_cpu_milli": allowed.allowed_milli},
        because=[Because(of="be_allowed_cpu_milli", bound=allowed.bound, terms=allowed.terms, adds=ADDS)],
    )


def calc_cpu_suppress_cfs_quota(
    *, be_allowed_cpu_milli: Whole, current_be_cfs_quota_us: Whole, node_capacity_cpu_milli: Amount
) -> Calculated:
    """Compute the next CFS quota of the best-effort cgroup by the CPU limit and the quota in force; -1: unlimited."""
    step = next_cfs_quota(
        allowed_milli=be_allowed_cpu_milli,
        current_us=None if current_be_cfs_quota_us == -1 else current_be_cfs_quota_us,
        capacity_milli=node_capacity_cpu_milli,
    )
    return figure("be_cfs_quota_us", step.quota_us, step)


def calc_cpu_suppress_cpuset_pick(*, cpus_wanted: Whole, processors: Processors) -> Calculated:
    """Pick CPUs, in order."""
    picked = pick_cpus(cpus_wanted, processors)
    return figure("cpus_in_pick_order", list(picked.cpus), picked)


def _cpus(text: str, path: str) -> Sequence[int]:
    cpus = cpu_list(text)
    if cpus is None:
        raise CaseError(path, f"not a CPU list such as 0-3,6 with ids up to {CPU_ID_MAX}")
    return cpus


Cpus = Nullable[Annotated[Sequence[int], By(_cpus, str)]]


class GivenPinnedPod(Given, frozen=True, kw_only=True):
    """A pod's class and its CPU list."""

    qos_label: str | None = None
    cpuset: str | None = None


def calc_cpu_suppress_cpuset(
    *,
    be_allowed_cpu_milli: Whole,
    current_be_cpuset: Nullable[Sequence[Amount]] = (),
    processors: Processors,
    pods_with_cpuset: Nullable[Sequence[GivenPinnedPod]] = (),
    reserved_cpus: Cpus = (),
    system_qos_cpus: Cpus = (),
    system_qos_exclusive: Nullable[bool] = True,
    cpus_min: Nullable[Annotated[int, msgspec.Meta(ge=1, le=CPU_ID_MAX)]] = CPUS_MIN,
) -> Calculated:
    """Compute the next CPU set of the best-effort cgroup by the CPU limit, the set in force, and the node's CPUs.

    ``cpus_min``: the minimum number of CPUs; the reference always uses 2.
    """
    node = NodeCpus(
        processors=processors, reserved=reserved_cpus, system=system_qos_cpus, system_exclusive=system_qos_exclusive
    )
    step = next_be_cpuset(
        allowed_milli=be_allowed_cpu_milli,
        current=current_be_cpuset,
        node=node,
        pods=_pinned(pods_with_cpuset),
        cpus_min=cpus_min,
    )
    return figure("be_cpuset", list(step.cpus), step)


def _pinned(pods: Sequence[GivenPinnedPod]) -> Iterator[PinnedPod]:
    """Yield pods one by one, so that only one long list is in memory."""
    for at, pod in enumerate(pods):
        yield PinnedPod(qos_label=pod.qos_label, cpus=_cpus(pod.cpuset or "", f"input.pods_with_cpuset[{at}].cpuset"))


def calc_cpu_pressure(
    *,
    node_capacity_cpu_milli: Amount,
    gate: PressureGate = OPEN,
    looks: Annotated[list[PressureLook], msgspec.Meta(max_length=LOOKS_MAX)],
) -> Calculated:
    """Compute the gate after the newest measurement by a sample's gate and the measurements since."""
    step = fold(LsPressure(gate=gate, looks=looks), node_capacity_cpu_milli)
    return figure("gate", msgspec.structs.asdict(step.gate), step)
