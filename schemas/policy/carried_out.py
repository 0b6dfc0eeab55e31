"""Which features of the policy act today. What is configured beyond them is checked, published, and said not to act."""

from __future__ import annotations

CARRIED_OUT = frozenset(
    {"NodeMetric", "BatchResource", "BECPUSuppress", "BECPUSuppress (cpuset)", "CFSQuotaBurst", "EvictionBudget"}
)
"""By their names in ``features.FEATURES``. Whoever builds one adds it here, and nowhere else."""
