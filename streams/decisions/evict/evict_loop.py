"""Selects victims for the features' releases, one feature after the other.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/util/evict_utils.go, KillAndEvictPods. Unlike the
reference, victims count in true units. A pod that frees nothing of what is still missing is not evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_candidates import Amounts, Candidates, EvictPod

Status = Literal["invalid_config", "nothing_to_release", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The result of one eviction feature."""

    status: Status
    amounts: Amounts
    """Empty unless the status is ``release``; a listed 0 requests nothing."""
    because: tuple[Because, ...]


def invalid(feature: str, **config: int | None) -> Release:
    """Return a release for incomplete or contradictory thresholds."""
    because = Because(of=feature, bound="invalid_config", terms=given(**config))
    return Release(status="invalid_config", amounts={}, because=(because,))


def nothing(of: str, bound: str, terms: Terms) -> Release:
    """Return a release without a shortage; ``bound`` names the reason."""
    because = Because(of=of, bound=bound, terms=terms)
    return Release(status="nothing_to_release", amounts={}, because=(because,))


def given(**terms: float | None) -> Terms:
    """Return the terms that have a value."""
    return {name: value for name, value in terms.items() if value is not None}


Kind = Literal["used", "request"]
"""What a victim's amount measures. Both kinds are released side by side."""
Tally = Counter[tuple[Kind, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictTask:
    """The release of one feature, its candidates, and what each of them frees."""

    feature: str
    kind: Kind
    release: Release
    candidates: Candidates
    """In order of eviction, including pods evicted in an earlier run."""
    frees: Callable[[EvictPod], Amounts]

    def missing(self, released: Tally) -> set[str]:
        """Return the resources that are not fully released."""
        amounts = self.release.amounts.items()
        return {resource for resource, amount in amounts if amount > released[self.kind, resource]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod to evict, and the feature that selected it."""

    pod: EvictPod
    feature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """The victims in order of eviction, and the tasks and reasons behind them."""

    tasks: tuple[EvictTask, ...]
    victims: tuple[Victim, ...]
    because: tuple[Because, ...]


def evict(tasks: Sequence[EvictTask]) -> Evictions:
    """Select each task's candidates until its amounts are released, by whichever task.

    A victim counts toward every task, once per kind and resource. Pods that were evicted earlier count, too.
    """
    counting = [task for task in tasks if task.release.amounts and task.missing(Counter())]
    released: Tally = Counter()
    handled: set[EvictPod] = set()
    victims = []
    for task in tasks:
        missing = task.missing(released)
        for pod in task.candidates:
            # If nothing is missing, the sets are disjoint, too.
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
    """Return what a victim frees. If tasks differ on a resource, the largest amount counts."""
    freed: Tally = Counter()
    for task in counting:
        freed |= _tally(task, task.frees(pod))
    return freed


def _outcome(counting: Sequence[EvictTask], released: Tally, victims: int) -> Because:
    """Compare released amounts with targets. If tasks differ on a resource, the largest target counts."""
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
