"""The stream worker without Kafka: takes records and returns records."""

from slacktide.streams.worker.nodes import FULL, TWO_BOOTS, UNKNOWN_NODE
from slacktide.streams.worker.one_by_one import NO_FACTS, NO_PODS
from slacktide.streams.worker.worker import Worker

__all__ = ["FULL", "NO_FACTS", "NO_PODS", "TWO_BOOTS", "UNKNOWN_NODE", "Worker"]
