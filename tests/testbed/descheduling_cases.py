"""Clusters for the tests of load-aware descheduling: nodes of 1000 millicores and 1000 bytes, so percents are easy."""

from math import inf
from random import Random

from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.load.load_aware_classify import Band, LoadedNode, PlacedPod, SurveyPolicy, survey
from slacktide.streams.decisions.load.load_aware_descheduling import Descheduled, DeschedulingPolicy


def pod(
    name: str = "pod",
    cpu: int | None = 0,
    *,
    memory: int = 0,
    band: str = "batch",
    requests: dict[str, int] | None = None,
    evictable: bool = True,
    created_s: int = 0,
    costs: dict[str, int] | None = None,
    **said,
) -> PlacedPod:
    """A pod by what it uses; ``cpu=None``: it has no metric. ``said`` are fields of the pod itself."""
    said = {"uid": name, "namespace": "default", "priority_class_label": f"koord-{band}"} | said
    return PlacedPod(
        pod=Pod(name=name, **said),
        requests=requests or {},
        used=None if cpu is None else {"cpu": cpu, "memory": memory},
        evictable=evictable,
        created_s=created_s,
        **(costs or {}),
    )


def node(
    name: str,
    *pods: PlacedPod,
    system: int = 0,
    age_s: float | None = 10,
    schedulable: bool = True,
    most: dict[str, int] | None = None,
    **allocatable: int,
) -> LoadedNode:
    """A node by its pods and by what the system uses of its CPU; ``most`` says how many pods it may hold."""
    has = {"cpu": 1000, "memory": 1000} | allocatable
    return LoadedNode(
        name=name,
        allocatable=has,
        capacity=has,
        schedulable=schedulable,
        pods=pods,
        used_besides=[{"cpu": system}],
        metric_age_s=age_s,
        **(most or {}),
    )


def policy(whole: tuple = (30, 60), prod: tuple = ()) -> SurveyPolicy:
    """Low and high percents of CPU; () sets no threshold."""
    bands = [Band(low={"cpu": of[0]}, high={"cpu": of[1]}) if of else Band(low={}, high={}) for of in (whole, prod)]
    return SurveyPolicy(whole=bands[0], prod=bands[1])


def victims(done: Descheduled) -> list[str]:
    return [one.pod.pod.name for one in done.evictions]


# Few and round figures, so that boundaries and ties are met.
AMOUNTS = (0, 1, 50, 100, 200, 300, 301, 400)
NAMES = ("cpu", "memory", "example.com/gpu")
amounts = st.sampled_from(AMOUNTS)
resources = st.sampled_from(NAMES)
# From a seed, for to draw each figure would take most of a test's time.
seeds = st.integers(0, 1 << 32).map(Random)


def random_pod(of: Random, name: str) -> PlacedPod:
    """Any pod that one may meet."""
    return pod(
        name,
        of.choice([None, *AMOUNTS, *AMOUNTS]),
        memory=of.choice(AMOUNTS) // 2,
        band=of.choice(["free", "batch", "mid", *["prod"] * 5]),
        phase=of.choice(["Running"] * 8 + ["Pending", "Succeeded", "Failed", "Unknown"]),
        requests={name: of.choice(AMOUNTS) for name in of.sample(NAMES, of.choice([0, 0, 1, 2]))},
        evictable=of.random() < 0.8,
        created_s=of.randrange(3),
        costs=of.choice([{}, {}, {"eviction_cost": -1}, {"deletion_cost": 1}]),
        priority=of.choice([None, 5000, 9000]),
    )


def random_node(of: Random, name: str) -> LoadedNode:
    """Any node that one may meet, idle ones now and then."""
    return node(
        name,
        *(random_pod(of, f"{name}-{number}") for number in range(of.choice([0, 1, 2, 4, 6, 8]))),
        system=of.choice([0, 1, 100]),
        age_s=of.choice([10] * 9 + [180, None, inf]),
        schedulable=of.random() < 0.9,
        most=of.choice([{}, {}, {"pods_max": 3}]),
        **of.choice([{}, {}, {"memory": 500}, {"cpu": 0}, {"example.com/gpu": 600}]),
    )


def random_cluster(of: Random) -> list[LoadedNode]:
    return [random_node(of, f"node-{number}") for number in range(of.randrange(8))]


def random_band(of: Random, *percents: int) -> Band:
    """Mostly of CPU; now and then thresholds that lack one another, or for what few nodes have."""
    names = of.choice([["cpu"], ["cpu"], ["cpu", "memory"], ["cpu", "memory"], ["memory"], [], list(NAMES)])
    low = {name: of.choice(percents) for name in names}
    high = {name: value + of.choice([5, 10, 30]) for name, value in low.items()} | of.choice([{}] * 5 + [{"cpu": 50}])
    return Band(low=low, high=high)


def random_survey_policy(of: Random) -> SurveyPolicy:
    return SurveyPolicy(
        whole=random_band(of, 10, 30, 50, 60), prod=random_band(of, 10, 20, 30), use_deviation=of.random() < 0.3
    )


def random_policy(of: Random) -> DeschedulingPolicy:
    """One that does not wait."""
    return DeschedulingPolicy(
        too_few_targets=of.choice([0, 0, 0, 1]),
        node_fit=of.random() < 0.5,
        weights={name: of.randrange(4) for name in of.sample(NAMES, 2)},
        consecutive_abnormalities=1,
    )


clusters = seeds.map(random_cluster)
surveys = seeds.map(lambda of: survey(random_cluster(of), random_survey_policy(of)))
survey_policies = seeds.map(random_survey_policy)
policies = seeds.map(random_policy)
