"""Scores as a kube-scheduler takes them from an extender: 0 to 10.

Slacktide's own; reading: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Sequence

BEST_LEVEL = 10


def levels(scores: Sequence[int], first: int | None = None) -> list[int]:
    """One level per score, 10 for the best; 0 only for a score of 0.

    A level is the score as a share of the best, in tenths rounded up, so that who is far behind stays far behind; but
    at least one step below the next better score, so that close nodes keep their order, as far as the steps go: further
    ones share level 1, where order matters least, for a scheduler takes the best.

    Args:
        scores: 0 or more, in any order; equal ones share a level.
        first: which of the best ones is alone at the top, for a scheduler takes any of equal ones; None: none is.

    """
    level_of = {0: 0}
    best = max(scores, default=0)
    before = BEST_LEVEL if first is not None and scores.count(best) > 1 else BEST_LEVEL + 1
    for score in sorted(set(scores) - {0}, reverse=True)[:BEST_LEVEL]:
        before = max(1, min(before - 1, -(-BEST_LEVEL * score // best)))
        level_of[score] = before
    found = [level_of.get(score, 1) for score in scores]
    if first is not None and best > 0:
        found[first] = BEST_LEVEL
    return found
