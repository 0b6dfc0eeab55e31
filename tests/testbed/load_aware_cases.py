"""Pods, reports and settings of load-aware scheduling for tests, and any of them for laws."""

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.schemas.inventory import Pod, Resources
from slacktide.streams.decisions.load.load_aware_estimator import (
    Aggregation,
    Amounts,
    Factors,
    LoadAwareArgs,
    LoadAwarePod,
    Percents,
    Thresholds,
    Weights,
)
from slacktide.streams.decisions.load.load_aware_existing import (
    AssignedPod,
    ExistingLoad,
    NodeReport,
    NodeUse,
    PodUse,
    assigned_pod,
    existing_load,
)

GIB = 2**30
T = 1_700_000_000
"""When the node reported, unless a test says otherwise."""
FIELDS = {
    "koord-prod": ("cpu_milli", "mem_bytes"),
    "koord-mid": ("mid_cpu_milli", "mid_mem_bytes"),
    "koord-batch": ("batch_cpu_milli", "batch_mem_bytes"),
    "koord-free": ("free_cpu_milli", "free_mem_bytes"),
}
EXACT = LoadAwareArgs(factors=Factors(100, 100))
"""Settings under which a pod is expected to use what it requests."""

calculation = cache(Calculation)


def answered(rule: str, case: object) -> dict:
    """What ``slacktide calc RULE`` says about a case, less its name."""
    answer = json.loads(calculation(rule).answer(json.dumps({"name": "case", "input": case})).line)
    assert answer.pop("name") in {"case", None}
    return answer


def asked(
    requests: tuple[int, int] = (0, 0),
    limits: tuple[int, int] = (0, 0),
    *,
    name: str = "a",
    of_class: str = "koord-prod",
    phase: str = "Running",
    **said: object,
) -> LoadAwarePod:
    """A pod that asks for CPU and memory of its class; ``said``: further fields of ``LoadAwarePod``."""

    def of(amounts: tuple[int, int]) -> Resources:
        return Resources(**{field: amount for field, amount in zip(FIELDS[of_class], amounts, strict=True) if amount})

    pod = Pod(
        uid=name,
        namespace="default",
        name=name,
        phase=phase,
        priority_class_label=of_class,
        requests=of(requests),
        limits=of(limits),
    )
    return LoadAwarePod(pod=pod, **said)


def report(used: tuple[int, int] | None = (0, 0), pods: dict[str, tuple[int, int]] | None = None) -> NodeReport:
    """What the node used (None: nothing is known of it as a whole), and production pods by name."""
    node = used and NodeUse(use=Amounts(*used), system=Amounts(), aggregated={})
    measured = {("default", name): PodUse(Amounts(*use), prod=True) for name, use in (pods or {}).items()}
    return NodeReport(updated_s=T, interval_s=60, node=node or None, pods=measured)


def load(reported: NodeReport, *pods: LoadAwarePod, args: LoadAwareArgs = EXACT) -> ExistingLoad:
    """The load of a node that these pods are assigned to."""
    return existing_load(reported, assigned(pods, args), prod_include_system=args.prod_include_system)


def assigned(pods: tuple[LoadAwarePod, ...], args: LoadAwareArgs, now_s: float = T + 10) -> list[AssignedPod]:
    return [assigned_pod(pod, now_s=now_s, args=args) for pod in pods]


NAMES = ("a", "b", "c", "d")
M = TypeVar("M")


def seeded(make: Callable[[Random], M]) -> st.SearchStrategy[M]:
    """Whatever is made from a seed: these have too many fields for hypothesis to choose one by one in good time."""
    return st.integers(0, 2**32 - 1).map(lambda seed: make(Random(seed)))


def _amounts(any_: Random) -> Amounts:
    """Small ones, which meet each other, and those of real machines."""
    if any_.random() < 0.5:
        return Amounts(any_.randint(0, 12), any_.randint(0, 12))
    return Amounts(any_.randint(0, 96_000), any_.randint(0, 64 * GIB))


def _percents(any_: Random) -> Percents:
    return Percents(any_.choice([0, 30, 65, 100, 120]), any_.choice([0, 50, 95]))


def _factors(any_: Random) -> Factors:
    return Factors(any_.choice([None, 0, any_.randint(1, 150)]), any_.choice([None, 0, any_.randint(1, 150)]))


def _statistic(any_: Random) -> Aggregation:
    return Aggregation(any_.choice(["p95", "p50", "avg"]), any_.choice([0, 300, 600]))


def _pod(any_: Random, name: str | None = None) -> LoadAwarePod:
    seconds = [None, -1, 0, 30, 60, 120]
    time = T + any_.randint(-130, 130)
    return asked(
        _amounts(any_),
        any_.choice([(0, 0), _amounts(any_)]),
        name=any_.choice(NAMES) if name is None else name,
        of_class=any_.choice(list(FIELDS)),
        phase=any_.choice(["Running", "Running", "Running", "Pending", "Succeeded", "Failed"]),
        custom_factors=_factors(any_),
        custom_after_scheduled_s=any_.choice(seconds),
        custom_after_initialized_s=any_.choice(seconds),
        scheduled_s=any_.choice([None, time]),
        initialized_s=any_.choice([None, time + any_.randint(0, 60)]),
        daemonset=any_.random() < 0.1,
    )


def _report(any_: Random) -> NodeReport:
    use = NodeUse(
        use=_amounts(any_),
        system=_amounts(any_),
        aggregated={_statistic(any_): _amounts(any_) for _ in range(any_.randint(0, 3))},
    )
    measured = any_.sample(NAMES, any_.randint(0, len(NAMES)))
    return NodeReport(
        updated_s=any_.choice([None, T, T, T + any_.randint(-130, 130)]),
        interval_s=any_.choice([0, 30, 60]),
        node=any_.choice([None, use, use, use]),
        pods={("default", name): PodUse(_amounts(any_), any_.random() < 0.5) for name in measured},
    )


def _thresholds(any_: Random) -> Thresholds:
    return Thresholds(
        usage=any_.choice([None, _percents(any_)]),
        prod=any_.choice([None, _percents(any_)]),
        aggregated=any_.choice([None, _percents(any_)]),
        aggregation=any_.choice([None, _statistic(any_)]),
    )


def _args(any_: Random) -> LoadAwareArgs:
    def maybe() -> bool:
        return any_.random() < 0.5

    return LoadAwareArgs(
        thresholds=_thresholds(any_),
        filter_expired=maybe(),
        schedule_when_expired=maybe(),
        expiration_s=any_.choice([-1, 0, 60, 180]),
        weights=any_.choice([None, Weights(any_.randint(0, 3), any_.randint(0, 3))]),
        dominant_weight=any_.randint(0, 2),
        score_prod=maybe(),
        score_aggregation=any_.choice([None, _statistic(any_)]),
        prod_include_system=maybe(),
        factors=_factors(any_),
        allow_customize=maybe(),
        after_scheduled_s=any_.choice([-1, 0, 60]),
        after_initialized_s=any_.choice([-1, 0, 60]),
        free_class_enable=maybe(),
    )


def pods(name: str | None = None) -> st.SearchStrategy[LoadAwarePod]:
    """Any pod of this name, or of one of a few."""
    return seeded(lambda any_: _pod(any_, name))


pods_there = seeded(lambda any_: tuple(_pod(any_, name) for name in any_.sample(NAMES, any_.randint(0, len(NAMES)))))
"""Up to four pods of different names."""
pairs = seeded(_amounts)
reports = seeded(_report)
thresholds = seeded(_thresholds)
all_args = seeded(_args)
