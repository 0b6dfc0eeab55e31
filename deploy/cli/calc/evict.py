"""Cases of the rules of eviction, on a node and from overloaded nodes."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from slacktide.deploy.cli.calc.case import (
    NO_AMOUNTS,
    Calculated,
    GivenResources,
    figure,
    kubernetes_names,
    pod_form,
    unique,
)
from slacktide.deploy.cli.calc.forms import AMOUNT_MAX, Amount, By, Cores, Flat, Form, Given, Nullable, Seconds, Whole
from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictPod, Order
from slacktide.streams.decisions.evict.mem_reclaim import MemoryLines, MemoryLook, PodMemory, ReclaimState, next_step
from slacktide.streams.decisions.evict.node_evict import CpuEvictNode, EvictNode, cpu_evict, memory_evict
from slacktide.streams.decisions.load.load_aware_classify import (
    Amounts,
    Band,
    LoadedNode,
    PlacedPod,
    SurveyPolicy,
    survey,
)
from slacktide.streams.decisions.load.load_aware_descheduling import (
    Descheduled,
    DeschedulingPolicy,
    PassState,
    deschedule,
)


class MeasuredPod(Pod, frozen=True, kw_only=True):
    """A pod with its last metrics."""

    already_evicted: bool = False
    memory_used_bytes: Amount | None = None
    cpu_used_cores: Cores | None = None

    def evictable(self, *, used: int | None) -> EvictPod:
        """Convert to the rule's type, with the pod's use of the scarce resource."""
        return EvictPod(pod=self, used=used, already_evicted=self.already_evicted)


GivenPods = Sequence[
    Annotated[
        MeasuredPod,
        pod_form(
            names={"eviction_features": "allowed_eviction_features"},
            eviction_enabled=Nullable[bool],
            eviction_priority=Nullable[Whole],
        ),
    ]
]


class Strategy(ResourceThreshold, frozen=True, kw_only=True):
    """The thresholds of a node, and the order of its victims; an absent threshold is not set."""

    free_class_enable: bool = False
    sub_priority_enable: bool = False

    @property
    def order(self) -> Order:
        """The order of victims."""
        return Order(free_first=self.free_class_enable, sub_priority=self.sub_priority_enable)


_STRATEGY = (
    "evict_enabled_priority_threshold allocatable_evict_priority_threshold free_class_enable sub_priority_enable"
)
NO_STRATEGY = Strategy(mem_evict_threshold_pct=None)


def shown(evictions: Evictions) -> Calculated:
    """Return the evictions in the format of the vectors."""
    tasks: list[dict[str, object]] = []
    for task in evictions.tasks:
        tasks.append({"feature": task.feature, "status": task.release.status})
        if task.release.status == "release":
            amounts = task.release.amounts.items()
            tasks[-1] |= {
                # Cases name memory in full.
                "to_release": {name.replace("mem_", "memory_"): amount for name, amount in amounts},
                "candidates_in_order": [one.pod.name for one in task.candidates],
            }
    victims = [victim.pod.pod.name for victim in evictions.victims]
    return Calculated(output={"tasks": tasks, "evicted_in_order": victims}, because=evictions.because)


def milli(cores: float | None) -> int | None:
    """Convert cores to millicores, rounded down."""
    return None if cores is None else int(cores * 1000)


GivenLook = Annotated[
    MemoryLook,
    Form(
        stalls_permille=(Mapping[str, Whole], {}),
        pods=(Sequence[Annotated[PodMemory, Form(swappable_bytes=(Amount, 0))]], ()),
    ),
]
GivenState = Annotated[ReclaimState, Form("calm_permille paused_until_ms pause_ms")]
FIRST = ReclaimState()


def calc_mem_reclaim(
    *, node: Annotated[MemoryLines, Form()], look: GivenLook, state: Nullable[GivenState] = FIRST
) -> Calculated:
    """Compute how much memory to reclaim from which best-effort pods, before any pod is evicted."""
    step = next_step(look, node, state)
    return figure("asked_bytes", {ask.uid: ask.ask_bytes for ask in step.asks}, step)


MemoryStrategy = Annotated[
    Strategy,
    Form(
        f"{_STRATEGY} mem_evict_threshold_pct mem_evict_lower_pct mem_allocatable_evict_threshold_pct"
        " mem_allocatable_evict_lower_pct",
        mem_evict_threshold_pct=None,
    ),
]


def calc_memory_evict(
    *,
    node_capacity_memory_bytes: Whole,
    node_memory_used_bytes: Amount | None = None,
    node_allocatable: Nullable[GivenResources] = NO_AMOUNTS,
    pods: Nullable[GivenPods] = (),
    enabled_features: Nullable[Sequence[str]] = (),
    strategy: Nullable[MemoryStrategy] = NO_STRATEGY,
) -> Calculated:
    """Compute the victims when memory is short, in order."""
    node = EvictNode(
        capacity=node_capacity_memory_bytes,
        used=node_memory_used_bytes,
        allocatable=node_allocatable,
        pods=[pod.evictable(used=pod.memory_used_bytes) for pod in pods],
    )
    return shown(memory_evict(node, features=enabled_features, policy=strategy, order=strategy.order))


Milli = Annotated[float, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
"""Averages may be fractions; a limit of -1 means unlimited."""


_MEASURED = (Nullable[Annotated[float, By(lambda measured, _: measured or 0, Milli)]], 0)
BestEffort = Annotated[BeCpu, Form(usage_milli=_MEASURED, request_milli=_MEASURED, limit_milli=_MEASURED)]
"""The CPU of all best-effort pods; values that were not measured are 0."""
UNUSED = BeCpu(usage_milli=0, request_milli=0, limit_milli=0)
CpuStrategy = Annotated[
    Strategy,
    Form(
        f"{_STRATEGY} cpu_evict_be_satisfaction_lower_pct cpu_evict_be_satisfaction_upper_pct"
        " cpu_evict_be_usage_threshold_pct cpu_evict_time_window_s cpu_evict_policy cpu_evict_threshold_pct"
        " cpu_evict_lower_pct cpu_allocatable_evict_threshold_pct cpu_allocatable_evict_lower_pct"
    ),
]


class _CpuEvictInput(Given, frozen=True, kw_only=True):
    node_capacity_cpu_milli: Whole
    node_cpu_used_cores_average: Cores | None = None
    node_allocatable: Nullable[GivenResources] = NO_AMOUNTS
    pods: Nullable[GivenPods] = []
    metric_collect_interval_seconds: Nullable[Seconds] = 1
    be_metric_sample_count: Nullable[Whole] = 0
    be_average: Nullable[BestEffort] = UNUSED
    be_current: Nullable[BestEffort] = UNUSED
    enabled_features: Nullable[list[str]] = []
    strategy: Nullable[CpuStrategy] = NO_STRATEGY


def calc_cpu_evict(given: _CpuEvictInput) -> Calculated:
    """Compute the victims when CPU is short, in order."""
    node = CpuEvictNode(
        capacity=given.node_capacity_cpu_milli,
        used=milli(given.node_cpu_used_cores_average),
        allocatable=given.node_allocatable,
        pods=[pod.evictable(used=milli(pod.cpu_used_cores)) for pod in given.pods],
        be=BeCpuWindow(
            average=given.be_average,
            current=given.be_current,
            samples=given.be_metric_sample_count,
            interval_s=given.metric_collect_interval_seconds,
        ),
    )
    return shown(cpu_evict(node, features=given.enabled_features, policy=given.strategy, order=given.strategy.order))


Threshold = Annotated[float, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
Rounds = Annotated[int, msgspec.Meta(ge=0, le=1000)]
# Thresholds and weights name resources as Kubernetes does.
_KUBERNETES_NAMES = kubernetes_names("batch", "mid")


def _amounts(declared: dict[str, int | None], _: str) -> Amounts:
    return {_KUBERNETES_NAMES.get(name, name): amount for name, amount in declared.items() if amount is not None}


GivenAmounts = Annotated[Amounts, By(_amounts, dict[str, Amount | None])]
"""A resource object with any resources."""
_OPTIONAL = Nullable[GivenAmounts]
_IDENTITY = Annotated[
    Pod,
    Form(
        "namespace name uid phase qos_label priority_class_label priority kube_qos",
        namespace=(str, "default"),
        name=(str, ""),
        uid=(str, ""),
        phase=str,
        kube_qos=str,
    ),
]
GivenPlacedPod = Annotated[
    PlacedPod,
    Form(pod=Flat[_IDENTITY], requests=(_OPTIONAL, {}), used=GivenAmounts | None, evictable=True, created_s=0),
]
"""A pod with its usage, and the other inputs of the eviction order."""


class _Node(Given, frozen=True, kw_only=True):
    name: str
    allocatable: GivenAmounts
    raw_allocatable: GivenAmounts | None = None
    unschedulable: Nullable[bool] = False
    has_metric: Nullable[bool] = True
    metric_age_seconds: Nullable[Seconds] = inf  # type: ignore[assignment] # of unknown age
    system_usage: _OPTIONAL = {}
    usage_of_pods_no_longer_on_node: _OPTIONAL = {}
    pods: Nullable[list[GivenPlacedPod]] = []

    def node(self) -> LoadedNode:
        return LoadedNode(
            name=self.name,
            allocatable=self.allocatable,
            capacity=self.allocatable if self.raw_allocatable is None else self.raw_allocatable,
            schedulable=not self.unschedulable,
            pods=self.pods,
            used_besides=[self.system_usage, self.usage_of_pods_no_longer_on_node],
            metric_age_s=self.metric_age_seconds if self.has_metric else None,
        )


def _band(view: str) -> Form:
    percents: tuple[Any, ...] = (Nullable[dict[str, Threshold]], {})
    return Form(names={"low": f"{view}low_thresholds", "high": f"{view}high_thresholds"}, low=percents, high=percents)


GivenSurvey = Annotated[
    SurveyPolicy,
    Form(
        whole=Flat[Annotated[Band, _band("")]],
        prod=Flat[Annotated[Band, _band("prod_")]],
        use_deviation=False,
        metric_expiration_s=180,
    ),
]
GivenPolicy = Annotated[
    DeschedulingPolicy,
    Form("too_few_targets node_fit weights consecutive_abnormalities", weights=Nullable[dict[str, Amount]]),
]


def calc_load_aware_descheduling(
    *,
    looked_at: Flat[GivenSurvey],
    policy: Flat[GivenPolicy],
    rounds: Nullable[Rounds] = 1,
    nodes: Sequence[_Node] = (),
) -> Calculated:
    """Select the pods to evict from overloaded nodes of an unchanged cluster, pass by pass."""
    unique((one.name for one in nodes), "input.nodes[{}].name", "{!r} is not unique: an earlier node has this name")
    seen = survey([one.node() for one in nodes], looked_at)
    state, done = PassState(), list[Descheduled]()
    for _ in range(rounds):
        done.append(deschedule(seen, policy, state))
        state = done[-1].state
    named = {name: [node.node.name for node in nodes] for name, nodes in seen.classes.items() if name != "between"}
    because = [
        replace(reason, of=f"rounds/{number}/{reason.of}") for number, one in enumerate(done) for reason in one.because
    ]
    return Calculated(
        output=named | {"evicted_per_round": list(map(_evicted, done))}, because=[*seen.because, *because]
    )


def _evicted(done: Descheduled) -> list[dict[str, object]]:
    return [
        {"pod": one.pod.pod.name, "node": one.node, "because_of_prod_usage": one.because_of_prod}
        for one in done.evictions
    ]
