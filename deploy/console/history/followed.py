"""Which topics the console follows."""

from __future__ import annotations

from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    DESCHEDULING,
    INVENTORY,
    JOB_STATUS,
    METRIC,
    MISSED_POD,
    OUTCOME,
    PLACEMENT,
    POLICY,
    QUEUE_SPEC,
    QUEUE_STATE,
    QUEUE_WORKLOAD,
    SAMPLES,
    SCORE,
    SHADOW_ALLOCATABLE,
    TICK,
)

STATE = (POLICY, INVENTORY, METRIC, ALLOCATABLE, SCORE, SHADOW_ALLOCATABLE)
"""Compacted topics: read from their beginning after each start."""
FACTS = (*SAMPLES, COMMAND, OUTCOME, PLACEMENT, MISSED_POD, DESCHEDULING, DEAD_LETTER, TICK)
"""Topics read from where the last stored minute ended."""
OBJECTS = (JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE, CREDIT)
"""Compacted, too: Jobs, the queue, and the credit of nodes. A cluster may lack them."""
TOPICS = (*STATE, *FACTS, *OBJECTS)
