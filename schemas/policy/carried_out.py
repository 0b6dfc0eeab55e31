"""Which features of the policy act today. Whatever else is configured is checked, published, and reported as idle."""

from __future__ import annotations

CARRIED_OUT = frozenset(
    {
        "NodeMetric",
        "NodeMetricReport",
        "BatchResource",
        "MidResource",
        "MidResource (static)",
        "FreeResource",
        "ResourceSync",
        "BEIsolation",
        "BECPUSuppress",
        "BECPUSuppress (cpuset)",
        "BEMemoryEvict",
        "MemoryEvict",
        "MemoryAllocatableEvict",
        "BECPUEvict",
        "CPUEvict",
        "CPUAllocatableEvict",
        "SubPriority",
        "CPUBurst",
        "CFSQuotaBurst",
        "CPUQOS (beClass)",
        "CPUQOS idle (beClass)",
        "MemoryQOS (lsrClass)",
        "MemoryQOS (lsClass)",
        "MemoryQOS (beClass)",
        "MemoryQOS (systemClass)",
        "EvictionBudget",
        "LowNodeLoad",
        "LoadAwareScheduling",
        "Suspend",
    }
)
"""By their names in ``features.FEATURES``. Whoever builds one adds it here, and nowhere else."""
