"""A pod list that many samples name: what follows from the list alone is found once, not for each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import effective_priority_class, is_best_effort


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


def best_effort_of(pods: Sequence[Pod]) -> Mapping[str, bool]:
    """Whether each pod is best-effort, by uid."""
    return pods.best_effort if isinstance(pods, KnownPods) else KnownPods(pods).best_effort


def classes_of(pods: Sequence[Pod]) -> Sequence[str]:
    """The effective priority class of each pod."""
    return pods.classes if isinstance(pods, KnownPods) else KnownPods(pods).classes
