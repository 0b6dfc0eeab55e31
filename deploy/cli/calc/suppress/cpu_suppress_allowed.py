"""``slacktide calc cpu_suppress_allowed``."""

from __future__ import annotations

from collections.abc import Iterable

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, Percent
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.node_load import node_reserved
from slacktide.streams.decisions.suppress.cpu_suppress_allowed import CpuUse, be_allowed_cpu

ADDS = ("+ceiling_milli", "-nonbe_pods_milli", "-nonbe_hosts_milli", "-system_milli")


class Reserved(Given, frozen=True, kw_only=True):
    """Annotation node.koordinator.sh/reservation."""

    cpu_milli: Amount | None = None
    reserved_cpus: str | None = None


class UsedPod(Given, frozen=True, kw_only=True):
    """A pod's classes and use."""

    qos_class: str | None = None
    kube_qos_class: str | None = None
    cpu_usage_cores: Cores | None = None


class HostApp(Given, frozen=True, kw_only=True):
    """An application outside Kubernetes."""

    qos_class: str | None = None
    cgroup_base: str | None = None
    cpu_usage_cores: Cores | None = None


class Input(Given, frozen=True, kw_only=True):
    """A node, its pods and host applications, and the threshold."""

    node_capacity_cpu_milli: Amount
    node_allocatable_cpu_milli: Amount
    reserved: Reserved | None = None
    node_cpu_usage_cores: Cores
    pods: list[UsedPod] | None = None
    pod_metrics_without_pod: list[UsedPod] | None = None
    host_apps: list[HostApp] | None = None
    threshold_percent: Percent
    min_percent: Percent | None = None


def calculate(given: Input) -> Calculated:
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
        pods=[*_pods(given.pods or ()), *(_use(pod.cpu_usage_cores) for pod in given.pod_metrics_without_pod or ())],
        hosts=[_use(app.cpu_usage_cores, best_effort=_is_best_effort(app)) for app in given.host_apps or ()],
        threshold_pct=given.threshold_percent,
        min_pct=given.min_percent,
    )
    return Calculated(
        output={"be_allowed_cpu_milli": allowed.allowed_milli},
        because=[Because(of="be_allowed_cpu_milli", bound=allowed.bound, terms=allowed.terms, adds=ADDS)],
    )


def _pods(pods: Iterable[UsedPod]) -> Iterable[CpuUse]:
    for pod in pods:
        best_effort = raw_qos(pod.qos_class) == "BE" or pod.kube_qos_class == "BestEffort"
        yield _use(pod.cpu_usage_cores, best_effort=best_effort)


def _is_best_effort(app: HostApp) -> bool:
    return app.qos_class == "BE" and app.cgroup_base == "KubepodsBesteffort"


def _use(cores: float | None, *, best_effort: bool = False) -> CpuUse:
    return CpuUse(used_cores=cores, best_effort=best_effort)
