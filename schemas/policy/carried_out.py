"""Which features of the policy act today. What is configured beyond them is checked, published, and said not to act."""

from __future__ import annotations

from slacktide.schemas.message import Message
from slacktide.schemas.policy.strategies import ResourceThreshold

CARRIED_OUT = frozenset({"NodeMetric", "BatchResource", "BECPUSuppress"})
"""By their names in ``features.FEATURES``. Whoever builds one adds it here, and nowhere else."""


def instead(strategy: Message) -> dict[str, str]:
    """What is carried out in place of a configured way that is not built yet, by the field that asks for it."""
    if isinstance(strategy, ResourceThreshold) and strategy.enable and strategy.cpu_suppress_policy == "cpuset":
        return {"cpu_suppress_policy": "cpuset is not built yet; carried out as cfsQuota"}
    return {}
