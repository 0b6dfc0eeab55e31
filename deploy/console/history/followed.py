"""Which topics the console follows: those that it may read."""

from __future__ import annotations

from slacktide.schemas.access import SHOWN
from slacktide.schemas.topics import CREDIT, JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD

OBJECTS = (JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE, CREDIT)
"""Jobs, the queue, and the credit of nodes, compacted. A cluster may lack them."""
STATE = tuple(topic for topic in SHOWN if topic.cleanup == "compact" and topic not in OBJECTS)
"""All other compacted topics: read from their beginning after each start."""
FACTS = tuple(topic for topic in SHOWN if topic.cleanup == "delete")
"""Topics read from where the last stored minute ended."""
TOPICS = (*STATE, *FACTS, *OBJECTS)
