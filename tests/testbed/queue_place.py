"""A Job's place in the queue, by the log of a test."""

from slacktide.deploy.cli.explain.workload_text import queue_text
from slacktide.schemas.topics import QUEUE_DECISION
from slacktide.streams.analysis.explain.job import Queue, QueuePlace
from testbed.queue_log import Log


def place_of(log: Log, name: str) -> QueuePlace:
    """Of a workload in the namespace ``jobs``."""
    queue = Queue([one for topic, records in log.topics.items() if topic != QUEUE_DECISION.name for one in records])
    found = queue.workload("jobs", name)
    assert found is not None, name
    return queue.explained(found, log.topics[QUEUE_DECISION.name], log.now_ms)


def text_of(log: Log, name: str) -> str:
    """As ``slacktide explain job`` prints it."""
    return queue_text(place_of(log, name), log.now_ms)
