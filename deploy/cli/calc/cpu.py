"""Cases of the rules of a node's CPU: suppression of best-effort pods, and CPU burst."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Processors, figure, unique
from slacktide.deploy.cli.calc.forms import Amount, By, Cores, Form, Given, Nullable, Percent, Whole
from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy.strategies import BurstPolicy, CpuBurst
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    Limiter,
    NodeState,
    SharePoolPod,
    limiter_capacity,
    next_quotas,
    share_pool,
)
from slacktide.streams.decisions.burst.node_burst import burst_policy, cfs_burst
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

OPEN = PressureGate()
ADDS = ("+ceiling_milli", "-nonbe_pods_milli", "-nonbe_hosts_milli", "-system_milli")


class _Reserved(Given, frozen=True, kw_only=True):
    cpu_milli: Amount | None = None
    reserved_cpus: Nullable[str] = ""


class Used(Given, frozen=True, kw_only=True):
    """The classes and use of a pod, or of an application outside Kubernetes, which has a ``cgroup_base``."""

    qos_label: str | None = None
    kube_qos: str | None = None
    cgroup_base: str | None = None
    used_cores: Cores | None = None


class _CpuSuppressAllowedInput(Given, frozen=True, kw_only=True):
    node_capacity_cpu_milli: Amount
    node_allocatable_cpu_milli: Amount
    reserved: Nullable[_Reserved] = _Reserved()
    node_cpu_usage_cores: Cores
    pods: Nullable[list[Used]] = []
    pod_metrics_without_pod: Nullable[list[Used]] = []
    host_apps: Nullable[list[Used]] = []
    threshold_pct: Percent
    min_pct: Percent | None = None


def calc_cpu_suppress_allowed(given: _CpuSuppressAllowedInput) -> Calculated:
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
    """Pick the CPUs that are added to a CPU set, in order."""
    picked = pick_cpus(cpus_wanted, processors)
    return figure("cpus_in_pick_order", list(picked.cpus), picked)


def _cpus(text: str, path: str) -> Sequence[int]:
    cpus = cpu_list(text)
    if cpus is None:
        raise CaseError(path, f"not a CPU list such as 0-3,6 with ids up to {CPU_ID_MAX}")
    return cpus


Cpus = Nullable[Annotated[Sequence[int], By(_cpus, str)]]


class _PinnedPod(Given, frozen=True, kw_only=True):
    qos_label: str | None = None
    cpuset: str | None = None


def calc_cpu_suppress_cpuset(
    *,
    be_allowed_cpu_milli: Whole,
    current_be_cpuset: Nullable[Sequence[Amount]] = (),
    processors: Processors,
    pods_with_cpuset: Nullable[Sequence[_PinnedPod]] = (),
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


def _pinned(pods: Sequence[_PinnedPod]) -> Iterator[PinnedPod]:
    """Yield pods one by one, so that only one long list is in memory."""
    for at, pod in enumerate(pods):
        yield PinnedPod(qos_label=pod.qos_label, cpus=_cpus(pod.cpuset or "", f"input.pods_with_cpuset[{at}].cpuset"))


def calc_cpu_pressure(
    *,
    gate: PressureGate = OPEN,
    looks: Annotated[list[PressureLook], msgspec.Meta(max_length=LOOKS_MAX)],
) -> Calculated:
    """Decide whether best-effort pods are paused, by a sample's pressure gate and the measurements since."""
    step = fold(LsPressure(gate=gate, looks=looks))
    return figure("gate", msgspec.structs.asdict(step.gate), step)


DEFAULTS = CpuBurst()
GivenPolicy = Nullable[Annotated[BurstPolicy, By(lambda text, _: burst_policy(text), str)]]
ValueConfig = Annotated[CpuBurst, Form("policy cpu_burst_pct", policy=GivenPolicy)]
"""A pod's configuration; absent fields have the node's default."""


def calc_cpu_burst_value(
    *, container_cpu_limit_milli: Amount | None = None, config: Nullable[ValueConfig] = DEFAULTS
) -> Calculated:
    """Compute the CFS burst of a container by its limit and its pod's configuration."""
    burst = cfs_burst(container_cpu_limit_milli, config)
    return figure("cfs_burst_us", burst.burst_us, burst)


UsedPod = Annotated[SharePoolPod, Form(request_milli=0)]


def calc_cpu_burst_node_state(
    *,
    share_pool_threshold_percent: Nullable[Percent] = DEFAULTS.share_pool_threshold_pct,
    node_cpu_count: Amount,
    node_cpu_usage_cores: Cores | None = None,
    pods: Nullable[Sequence[UsedPod]] = (),
) -> Calculated:
    """Return whether a node has CPU to lend to throttled containers."""
    pool = share_pool(
        node_cpus=node_cpu_count,
        node_used_cores=node_cpu_usage_cores,
        pods=pods,
        threshold_pct=share_pool_threshold_percent,
    )
    return figure("node_state", pool.state, pool)


NO_QUOTAS = CpuBurst(cfs_quota_burst_pct=None, cfs_quota_burst_period_s=None)
QuotaConfig = Annotated[
    CpuBurst,
    Form(
        "policy cfs_quota_burst_pct cfs_quota_burst_period_s",
        policy=GivenPolicy,
        cfs_quota_burst_pct=None,
        cfs_quota_burst_period_s=None,
    ),
]
"""A pod's configuration; absent quota fields are not set."""
GivenContainer = Annotated[
    BurstContainer,
    Form(
        "name limit_milli quota_us running throttled_ratio used_cores limiter elapsed_s",
        running=...,
        # The capacity is the configuration's. Null: the limiter is new and has no tokens.
        limiter=Nullable[Annotated[Limiter, By(lambda tokens, _: Limiter(capacity_tokens=0, tokens=tokens), Whole)]],
        elapsed_s=Nullable[Amount],
    ),
]


def calc_cpu_burst_quota(
    *,
    config: Nullable[QuotaConfig] = NO_QUOTAS,
    node_state: NodeState,
    current_pod_cfs_quota_us: Whole,
    containers: Nullable[Sequence[GivenContainer]] = (),
) -> Calculated:
    """Compute the next CFS quota of throttled containers and their pod; a quota of -1 is unlimited."""
    unique((one.name for one in containers), "input.containers[{}].name", "{!r} is given twice")
    pod = next_quotas(
        config=config,
        node_state=node_state,
        pod_quota_us=current_pod_cfs_quota_us,
        containers=[_limited(container, limiter_capacity(config)) for container in containers],
    )
    shown = {container.name: {"cfs_quota_us": container.quota_us} for container in pod.containers}
    for container in pod.containers:
        if container.limiter is not None:
            shown[container.name]["limiter_tokens_after"] = container.limiter.tokens
    return Calculated(output={"containers": shown, "pod_cfs_quota_us": pod.quota_us}, because=pod.because)


def _limited(container: BurstContainer, capacity: int | None) -> BurstContainer:
    limiter = container.limiter if capacity is not None else None
    return replace(container, limiter=limiter and replace(limiter, capacity_tokens=capacity or 0))
