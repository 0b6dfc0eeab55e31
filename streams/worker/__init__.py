"""The stream worker without Kafka: records in, records out."""

from slacktide.streams.worker.answering import NO_FACTS, NO_PODS
from slacktide.streams.worker.worker import Worker

__all__ = ["NO_FACTS", "NO_PODS", "Worker"]
