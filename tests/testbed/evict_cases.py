"""Pods for tests about eviction: short to write, and any that there may be."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.qos import BANDS, QOS_CLASSES
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictPod


def be(name: str, **more: Any) -> EvictPod:
    """A running best-effort batch pod that allows eviction."""
    pod = Pod(uid=name, namespace="jobs", name=name, qos_label="BE", priority=5500, eviction_enabled=True)
    return EvictPod(pod=pod, **more)


def names(pods: Iterable[EvictPod]) -> list[str]:
    """Of candidates, in order."""
    return [one.pod.name for one in pods]


def evicted(evictions: Evictions) -> list[str]:
    """The victims' names, in order."""
    return names(victim.pod for victim in evictions.victims)


def gone(pods: Iterable[EvictPod], evictions: Evictions) -> list[EvictPod]:
    """The same pods a moment later: the victims are evicted, and still there."""
    victims = {victim.pod for victim in evictions.victims}
    return [replace(one, already_evicted=one.already_evicted or one in victims) for one in pods]


_amounts = st.integers(0, 60)
_often_be = st.sampled_from([*["BE"] * 9, *QOS_CLASSES, "weird", None])
_often_live = st.sampled_from([*["Running"] * 7, "Pending", "Failed", "Succeeded"])
_often_unlabelled = st.sampled_from([*[None] * 7, *BANDS, "bogus"])


def pods_allowing(*features: str) -> st.SearchStrategy[Pod]:
    """Pods of any kind, live or not, that allow any of the features, or say nothing about them."""
    return st.builds(
        Pod,
        uid=st.just(""),
        namespace=st.just("jobs"),
        name=st.sampled_from(["a", "ab", "b"]),
        phase=_often_live,
        qos_label=_often_be,
        priority_class_label=_often_unlabelled,
        sub_priority=st.sampled_from([None, 5000, 5600]),
        priority=st.sampled_from([5500, 5000, 0, None, 100, 3500, 7500, 9500]),
        kube_qos=st.sampled_from(["BestEffort", "Burstable"]),
        requests=_amounts.map(
            lambda n: Resources(
                cpu_milli=n,
                mem_bytes=n,
                batch_cpu_milli=2 * n,
                batch_mem_bytes=2 * n,
                mid_cpu_milli=40,
                mid_mem_bytes=40,
            )
        ),
        eviction_enabled=st.sampled_from([*[True] * 5, False]),
        eviction_priority=st.integers(-1, 1),
        eviction_features=st.sampled_from([*[None] * 9, [], *([feature] for feature in features)]),
    )


sold = st.builds(Resources, **{name: st.none() | _amounts for name in Resources.__struct_fields__})
"""A node's allocatable; what is None or 0 is not sold."""


def any_pods(*features: str) -> st.SearchStrategy[list[EvictPod]]:
    """Pods and what they use, known or not; some are evicted already, some may not go."""
    one = st.builds(
        EvictPod,
        pod=pods_allowing(*features),
        used=_amounts | st.sampled_from([None, 30]),
        already_evicted=st.sampled_from([*[False] * 5, True]),
        spared=st.sampled_from([*[False] * 7, True]),
    )
    return st.lists(one, min_size=2, max_size=8)


def distinct(pods: Iterable[EvictPod]) -> list[EvictPod]:
    """The pods with nothing left to tie: each has a name, a use, requests and a ratio of both that no other has."""
    apart = []
    for at, one in enumerate(pods, start=1):
        requests = Resources(**dict.fromkeys(Resources.__struct_fields__, 100 * at))
        pod = msgspec.structs.replace(one.pod, name=f"{at:02}", requests=requests)
        apart.append(replace(one, pod=pod, used=100 * at + at * at))
    return apart
