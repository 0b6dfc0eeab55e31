"""The topics that the console follows."""

from __future__ import annotations

from slacktide.schemas.access import SHOWN
from slacktide.schemas.topics import CREDIT, JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD

OBJECTS = (JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE, CREDIT)
"""Compacted topics of Jobs, queue and credit. A cluster may lack them."""
STATE = tuple(topic for topic in SHOWN if topic.cleanup == "compact" and topic not in OBJECTS)
"""Other compacted topics: read from the start after each restart."""
FACTS = tuple(topic for topic in SHOWN if topic.cleanup == "delete")
"""Topics read from the last stored minute."""
TOPICS = (*STATE, *FACTS, *OBJECTS)
