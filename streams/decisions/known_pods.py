"""A pod list that many samples name: what follows from the list alone is found once, not for each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from slacktide.schemas.inventory import ENDED_PHASES, LIVE_PHASES, Pod
from slacktide.schemas.metric import Use
from slacktide.schemas.qos import effective_priority_class, is_best_effort
from slacktide.schemas.score import use_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What pods have asked for together."""

    batch: Use
    mid: Use
    there: frozenset[str]
    """Uids of pods that have not ended."""


class KnownPods(list[Pod]):
    """Never changed once it is made."""

    @cached_property
    def best_effort(self) -> Mapping[str, bool]:
        """By uid."""
        return {pod.uid: is_best_effort(pod) for pod in self}

    @cached_property
    def classes(self) -> Sequence[str]:
        """Effective priority classes, in order of the list."""
        return [effective_priority_class(pod) for pod in self]

    @cached_property
    def asked(self) -> Asked:
        """Of those that hold what they asked for."""
        requests = [pod.requests for pod in self if pod.phase in LIVE_PHASES]
        return Asked(
            batch=use_of(
                sum(asked.batch_cpu_milli or 0 for asked in requests),
                sum(asked.batch_mem_bytes or 0 for asked in requests),
            ),
            mid=use_of(
                sum(asked.mid_cpu_milli or 0 for asked in requests),
                sum(asked.mid_mem_bytes or 0 for asked in requests),
            ),
            there=frozenset(pod.uid for pod in self if pod.phase not in ENDED_PHASES),
        )


def best_effort_of(pods: Sequence[Pod]) -> Mapping[str, bool]:
    """Whether each pod is best-effort, by uid."""
    return pods.best_effort if isinstance(pods, KnownPods) else KnownPods(pods).best_effort


def classes_of(pods: Sequence[Pod]) -> Sequence[str]:
    """The effective priority class of each pod."""
    return pods.classes if isinstance(pods, KnownPods) else KnownPods(pods).classes


def asked_of(pods: Sequence[Pod]) -> Asked:
    """What the pods have asked for together."""
    return pods.asked if isinstance(pods, KnownPods) else KnownPods(pods).asked
