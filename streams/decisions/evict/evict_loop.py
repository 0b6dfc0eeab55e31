"""From what the features want released to victims: the features in turn, counting what each victim frees.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/util/evict_utils.go, KillAndEvictPods.
Different on purpose: a victim counts in true units, and one that would free only what is released already,
or nothing that is asked for, stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_candidates import Candidates
from slacktide.streams.decisions.evict.evict_pod import Amounts, EvictPod
from slacktide.streams.decisions.evict.evict_release import Release

Kind = Literal["used", "request"]
"""What is counted of a victim: the two are released side by side."""
Tally = Counter[tuple[Kind, str]]
"""Amounts by kind and resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictTask:
    """One feature's part: what it wants released, of whom, and how a victim counts toward it."""

    feature: str
    kind: Kind
    release: Release
    candidates: Candidates
    """The first victim first; those evicted in an earlier run among them."""
    frees: Callable[[EvictPod], Amounts]

    def missing(self, released: Tally) -> set[str]:
        """The resources of which not enough is released."""
        amounts = self.release.amounts.items()
        return {resource for resource, amount in amounts if amount > released[self.kind, resource]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod to evict, and the feature that wants it."""

    pod: EvictPod
    feature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """Victims in the order of their eviction, and all that led to them."""

    tasks: tuple[EvictTask, ...]
    victims: tuple[Victim, ...]
    because: tuple[Because, ...]


def evict(tasks: Sequence[EvictTask]) -> Evictions:
    """Walk each task's candidates until what it wants is released, by whichever task.

    A victim counts toward every task that wants something, once for each kind and resource. A pod that was
    evicted in an earlier run counts when its turn comes and is no victim again.
    """
    counting = [task for task in tasks if task.release.amounts and task.missing(Counter())]
    released: Tally = Counter()
    handled: set[EvictPod] = set()
    victims = []
    for task in tasks:
        missing = task.missing(released)
        for pod in task.candidates:
            # Also where nothing is missing any more: then no resource is left to have in common.
            if pod in handled or missing.isdisjoint(task.frees(pod)):
                continue
            handled.add(pod)
            if not pod.already_evicted:
                victims.append(Victim(pod=pod, feature=task.feature))
            released.update(_freed(pod, counting))
            missing = task.missing(released)
    because = (*(one for task in tasks for one in task.release.because), _outcome(counting, released, len(victims)))
    return Evictions(tasks=tuple(tasks), victims=tuple(victims), because=because)


def _freed(pod: EvictPod, counting: Sequence[EvictTask]) -> Tally:
    """What a victim frees: of what several tasks count, the largest."""
    freed: Tally = Counter()
    for task in counting:
        freed |= _tally(task, task.frees(pod))
    return freed


def _outcome(counting: Sequence[EvictTask], released: Tally, victims: int) -> Because:
    """Released against wanted; of what several tasks want, the largest."""
    targets: Tally = Counter()
    for task in counting:
        targets |= _tally(task, task.release.amounts)
    terms: Terms = {}
    for (kind, resource), target in targets.items():
        of, _, unit = resource.rpartition("_")
        terms[f"{kind}_{of}_target_{unit}"] = target
        terms[f"{kind}_{of}_released_{unit}"] = released[kind, resource]
    short = any(released[key] < target for key, target in targets.items())
    bound = ("too_few_candidates" if short else "released") if targets else "no_shortage"
    return Because(of="evicted_pods", bound=bound, terms=terms | {"evicted_pods": victims})


def _tally(task: EvictTask, amounts: Amounts) -> Tally:
    return Counter({(task.kind, resource): amount for resource, amount in amounts.items()})
