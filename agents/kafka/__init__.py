"""The agents' and the command line's one door to Kafka. No other module of theirs imports aiokafka."""

from __future__ import annotations

from slacktide.agents.kafka.admin import (
    PartitionLag,
    TopicState,
    create_topics,
    describe_topics,
    group_lag,
    read_topic,
)
from slacktide.agents.kafka.following import Following
from slacktide.agents.kafka.reader import Heard, NodeReader
from slacktide.agents.kafka.records import Out, Placed, Record, partition_of
from slacktide.agents.kafka.sender import Sender
from slacktide.agents.kafka.tail import TailReader
from slacktide.streams import connecting, lenient

connecting.install()
lenient.install()

__all__ = [
    "Following",
    "Heard",
    "NodeReader",
    "Out",
    "PartitionLag",
    "Placed",
    "Record",
    "Sender",
    "TailReader",
    "TopicState",
    "create_topics",
    "describe_topics",
    "group_lag",
    "partition_of",
    "read_topic",
]
