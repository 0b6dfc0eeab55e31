"""Published figures never fall below what the running pods of a node have asked for."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.allocatable import SOLD, NodeAllocatable
from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.schemas.topics import ALLOCATABLE
from testbed.history.records import History
from testbed.history.verdict import Verdict, verdict


def below_floor(published: NodeAllocatable, pods: Sequence[Pod]) -> list[str]:
    """Figures that are lower than the live pods' requests, summed here anew."""
    live = [pod for pod in pods if pod.phase in LIVE_PHASES]
    asked = {name: sum(getattr(pod.requests, name) or 0 for pod in live) for name in SOLD}
    return [f"{name} {getattr(published, name)} < {asked[name]}" for name in SOLD if _short(published, name, asked)]


def _short(published: NodeAllocatable, name: str, asked: dict[str, int]) -> bool:
    return (getattr(published, name) or 0) < asked[name]


def figures_floored(history: History) -> Verdict:
    """Stale and degraded ones, too."""
    checked, broken = 0, list[str]()
    for entry in history.of(ALLOCATABLE, NodeAllocatable):
        pods = history.pods.get(entry.body.pods_revision)
        checked += pods is not None
        broken += [f"{entry.body.node}/{entry.body.seq}: {why}" for why in below_floor(entry.body, pods or ())]
    return verdict("figures not below requests", checked, broken)
