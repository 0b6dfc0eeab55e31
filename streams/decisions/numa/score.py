"""Scores the zones of a node for a pod.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/score.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.allocation import SCORE_MAX, Allocation, request_score
from slacktide.streams.decisions.numa.least_numa import least_numa
from slacktide.streams.decisions.numa.pod import Pod, steps
from slacktide.streams.decisions.numa.topology import Kubelet, Zone

Strategy = Literal[Allocation, "LeastNUMANodes"]
STRATEGIES: tuple[Strategy, ...] = (*get_args(Allocation), "LeastNUMANodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score of 0 to 100, with its computation; lower for the reference's LeastNUMANodes."""

    score: int
    because: Because


def numa_score(
    pod: Pod,
    kubelet: Kubelet,
    zones: Sequence[Zone] | None,
    strategy: Strategy,
    weights: Mapping[str, int],
    *,
    corrected: bool = False,
) -> Score:
    """Score a node for a pod; pods that are not Guaranteed always score 100.

    ``zones`` None: the topology is unknown or stale. ``LeastNUMANodes`` scores under every policy, the others only
    under ``single-numa-node``. ``corrected``: see docs/numa-rules.md.
    """
    if not pod.guaranteed:
        return _score("not_guaranteed", SCORE_MAX)
    if zones is None:
        return _score("no_topology", 0)
    wanted = list(steps(pod, kubelet.scope, corrected=corrected))
    if strategy == "LeastNUMANodes":
        needed = least_numa(wanted, zones, kubelet, corrected=corrected)
        return _score("zones", needed.score, max_zone_count=kubelet.max_zones, zone_count=needed.zone_count)
    if kubelet.policy != "single-numa-node":
        return _score("other_policy", 0)
    scores = [request_score(step.request, zones, strategy, weights, corrected=corrected) for step in wanted]
    total = sum(scores)
    return _score("mean", total // len(scores) if scores else 0, total_score=total, request_count=len(scores))


def _score(bound: str, score: int, **terms: int) -> Score:
    return Score(score=score, because=Because(of="score", bound=bound, terms={**terms, "score": score}))
