"""Pods on their way into a cluster, and the profiles that change them: short to write in a test, and at random."""

from dataclasses import replace

from hypothesis import strategies as st

from slacktide.schemas.policy.selector import Selector
from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod, Container
from slacktide.streams.decisions.admission.label_selector import InvalidSelector
from slacktide.streams.decisions.admission.webhook_colocation_profile import (
    Cluster,
    Mutation,
    PriorityClass,
    Profile,
    mutated,
)

GIB = 2**30
BATCH_CPU, BATCH_MEM = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU, MID_MEM = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"
FREE_CPU, FREE_MEM = "kubernetes.io/free-cpu", "kubernetes.io/free-memory"
CLASSES = {
    "koord-prod": PriorityClass(value=9500),
    "koord-mid": PriorityClass(value=7500),
    "koord-batch": PriorityClass(value=5500, preemption_policy="Never"),
    "koord-free": PriorityClass(value=3500, preemption_policy="Never"),
}
SPARK = Selector(match_labels={"app": "spark"})
TEAM = Selector(match_labels={"team": "data"})
BROKEN = InvalidSelector(why="a test says so")


def container(name: str = "main", cpu_milli: int | None = 1_000, mem_bytes: int | None = GIB, **given) -> Container:
    """It requests native CPU and memory, and limits nothing."""
    asked = {"cpu": cpu_milli, "memory": mem_bytes}
    return Container(**{"name": name, "requests": {key: one for key, one in asked.items() if one is not None}} | given)


def pod(**given) -> AdmittedPod:
    """A Spark pod of one container."""
    return AdmittedPod(**{"labels": {"app": "spark"}, "containers": (container(),)} | given)


def cluster(*, drawn: int = 0, **given) -> Cluster:
    """The namespace is the data team's; every draw gives the same number."""
    fields = {"namespace_labels": {"team": "data"}, "priority_classes": CLASSES, "draw": lambda _: drawn}
    return Cluster(**fields | given)


def admitted(
    given: AdmittedPod, *profiles: Profile, operation: str = "CREATE", around: Cluster | None = None
) -> Mutation:
    return mutated(given, operation, profiles, around or cluster())


def changed(given: AdmittedPod, *profiles: Profile, around: Cluster | None = None) -> AdmittedPod:
    """The pod as it is stored."""
    mutation = admitted(given, *profiles, around=around)
    assert mutation.pod is not None, mutation.refused
    return mutation.pod


# Random ones keep "app" and "team", which selectors look at, apart from what profiles set.
_texts = st.sampled_from(
    [
        {},
        {"x": "a"},
        {"koordinator.sh/qosClass": "BE"},
        {"koordinator.sh/qosClass": "LS", "x": ""},
        {"koordinator.sh/priority-class": "koord-mid", "y": "b"},
        {"koordinator.sh/priority-class": "odd"},
    ]
)
_amounts = st.sampled_from(
    [
        {},
        {"cpu": 0},
        {"cpu": 1_500},
        {"memory": 2 * GIB},
        {"cpu": 2_000, "memory": 5_000, "example.com/gpu": 1},
        {BATCH_CPU: 700, BATCH_MEM: GIB},
        {"cpu": 900, BATCH_CPU: 1, MID_CPU: 3},
        {"memory": 9, MID_CPU: 4},
    ]
)
_selectors = st.sampled_from([Selector(), SPARK, Selector(match_labels={"app": "web"}), BROKEN])
_containers = st.lists(
    st.builds(Container, name=st.sampled_from("abc"), requests=_amounts, limits=_amounts),
    max_size=3,
    unique_by=lambda one: one.name,
).map(tuple)

pods = st.builds(
    AdmittedPod,
    labels=_texts.map(lambda texts: texts | {"app": "spark"}),
    annotations=_texts,
    priority=st.none() | st.sampled_from([0, 3500, 5500, 7500, 9500]),
    init_containers=_containers,
    containers=_containers,
    overhead=_amounts,
)
profiles = st.builds(
    Profile,
    name=st.sampled_from("abcdef"),
    namespace_selector=st.sampled_from([Selector(), TEAM, Selector(match_labels={"team": "web"}), BROKEN]),
    selector=_selectors,
    probability=st.sampled_from([0, 30, "50%", 100]),
    skip_update_resources=st.booleans(),
    labels=_texts,
    annotations=_texts,
    label_keys_mapping=st.sampled_from([{}, {"app": "copied"}, {"missing": "empty"}]),
    scheduler_name=st.sampled_from(["", "koord-scheduler"]),
    qos_class=st.sampled_from(["", "BE", "LS"]),
    priority_class_name=st.sampled_from(["", *CLASSES]),
    koordinator_priority=st.none() | st.integers(0, 9999),
    patch=st.sampled_from(
        [
            None,
            {"metadata": {"labels": {"x": None}}},
            {"spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "new", "image": "i"}]}},
        ]
    ),
)
clusters = st.builds(
    lambda drawn, readable, free: cluster(
        drawn=drawn, free_class_enable=free, **({} if readable else {"namespace_labels": None})
    ),
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
)


def many(min_size: int = 0):
    """Profiles of different names, as a cluster has them."""
    return st.lists(profiles, min_size=min_size, max_size=4, unique_by=lambda one: one.name)


def unmatchable(profile: Profile) -> Profile:
    """The same, for other pods."""
    return replace(profile, selector=Selector(match_labels={"app": "nobody"}))
