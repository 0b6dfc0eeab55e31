"""A pod list that many samples name: what follows from the list alone is found once, not for each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from sys import intern
from typing import NamedTuple

import msgspec

from slacktide.schemas.inventory import ENDED_PHASES, LIVE_PHASES, Pod
from slacktide.schemas.metric import Use
from slacktide.schemas.qos import effective_priority_class, effective_qos, is_best_effort
from slacktide.schemas.score import use_of

LOW_CLASSES = frozenset({"koord-batch", "koord-free"})
REQUEST_FIELDS = (
    "batch_cpu_milli",
    "batch_mem_bytes",
    "mid_cpu_milli",
    "mid_mem_bytes",
    "free_cpu_milli",
    "free_mem_bytes",
)
"""Of ``Resources``: what is sold by class."""


class HighPod(NamedTuple):
    """A live pod that comes before batch pods."""

    uid: str
    cpu_milli: int
    mem_bytes: int
    """Both: what it asked for."""
    lse: bool


class KnownPods(list[Pod]):
    """Never changed once it is made."""

    @cached_property
    def best_effort(self) -> Mapping[str, bool]:
        """By uid."""
        return {pod.uid: is_best_effort(pod) for pod in self}

    @cached_property
    def live(self) -> frozenset[str]:
        """Uids of pods that hold what they asked for."""
        return frozenset(pod.uid for pod in self if pod.phase in LIVE_PHASES)

    @cached_property
    def there(self) -> frozenset[str]:
        """Uids of pods that have not ended."""
        found = frozenset(pod.uid for pod in self if pod.phase not in ENDED_PHASES)
        return self.live if found == self.live else found

    @cached_property
    def high(self) -> Sequence[HighPod]:
        """Live pods of neither batch nor free class, in order of the list."""
        return [
            HighPod(
                uid=pod.uid,
                cpu_milli=pod.requests.cpu_milli or 0,
                mem_bytes=pod.requests.mem_bytes or 0,
                lse=effective_qos(pod.qos_label, pod.kube_qos) == "LSE",
            )
            for pod, klass in self._live_classes
            if klass not in LOW_CLASSES
        ]

    @cached_property
    def prod_request(self) -> Use:
        """What live production pods asked for together."""
        prod = [pod.requests for pod, klass in self._live_classes if klass not in LOW_CLASSES and klass != "koord-mid"]
        return Use(cpu_milli=sum(one.cpu_milli or 0 for one in prod), mem_bytes=sum(one.mem_bytes or 0 for one in prod))

    @cached_property
    def asked(self) -> Mapping[str, int]:
        """What live pods asked for together of what is sold by class, by field of ``Resources``."""
        live = [pod.requests for pod in self if pod.phase in LIVE_PHASES]
        return {field: sum(getattr(one, field) or 0 for one in live) for field in REQUEST_FIELDS}

    @cached_property
    def batch_asked(self) -> Use:
        """What live pods asked for together of batch resources."""
        return use_of(self.asked["batch_cpu_milli"], self.asked["batch_mem_bytes"])

    @cached_property
    def mid_asked(self) -> Use:
        """The same of mid resources."""
        return use_of(self.asked["mid_cpu_milli"], self.asked["mid_mem_bytes"])

    @cached_property
    def _live_classes(self) -> Sequence[tuple[Pod, str]]:
        return [(pod, effective_priority_class(pod)) for pod in self if pod.phase in LIVE_PHASES]


def sharing(pods: Sequence[Pod], before: Sequence[Pod]) -> KnownPods:
    """A list that is kept beside the one before it: pods that are as they were are in memory once, as are names."""
    were = {pod.uid: pod for pod in before}
    return KnownPods(were[pod.uid] if were.get(pod.uid) == pod else _interned(pod) for pod in pods)


def _interned(pod: Pod) -> Pod:
    words = {name: getattr(pod, name) for name in ("namespace", "qos_label", "priority_class_label", "kube_qos")}
    return msgspec.structs.replace(pod, **{name: intern(word) for name, word in words.items() if word is not None})


def known(pods: Sequence[Pod]) -> KnownPods:
    """The list itself, if it is known already."""
    return pods if isinstance(pods, KnownPods) else KnownPods(pods)
