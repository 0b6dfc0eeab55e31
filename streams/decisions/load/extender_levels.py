"""Converts scores to the range that a kube-scheduler accepts from an extender: 0 to 10.

Slacktide's own; reading: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go.
"""

from collections.abc import Sequence

BEST_LEVEL = 10


def levels(scores: Sequence[int], first: int | None = None) -> list[int]:
    """Convert each score of at least 0 to a level: the best is 10, and only a score of 0 is 0.

    A level is the score's share of the best in tenths, rounded up, but below the next better level, and at least 1.
    With ``first``, only that one of equal best scores is 10, because a scheduler picks any of equal nodes.
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
