"""The streams' one door to Kafka. No other module of theirs but the Faust shell imports aiokafka.

Every trouble leaves here as a ``LogError``.
"""

from __future__ import annotations

from slacktide.streams import connecting, lenient
from slacktide.streams.kafka.common import close, record_of
from slacktide.streams.kafka.ends import Ends
from slacktide.streams.kafka.feed import Feed
from slacktide.streams.kafka.follower import Follower
from slacktide.streams.kafka.gathering import Gathering
from slacktide.streams.kafka.group import (
    METADATA_MS,
    POLL_RECORDS_MAX,
    Fetched,
    Group,
    committed,
    leave_first_generation,
)
from slacktide.streams.kafka.readers import History, Latest, last_of_each_key, partition_counts, present
from slacktide.streams.kafka.sender import Refusal, Sender
from slacktide.streams.kafka.span import Span, Spans
from slacktide.streams.kafka.tail import TAIL_RECORDS_MAX, Place, Read, Tail, partition_of

connecting.install()
lenient.install()

__all__ = [
    "METADATA_MS",
    "POLL_RECORDS_MAX",
    "TAIL_RECORDS_MAX",
    "Ends",
    "Feed",
    "Fetched",
    "Follower",
    "Gathering",
    "Group",
    "History",
    "Latest",
    "Place",
    "Read",
    "Refusal",
    "Sender",
    "Span",
    "Spans",
    "Tail",
    "close",
    "committed",
    "last_of_each_key",
    "leave_first_generation",
    "partition_counts",
    "partition_of",
    "present",
    "record_of",
]
