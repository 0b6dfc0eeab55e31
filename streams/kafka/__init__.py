"""The only access to Kafka: no other module but the Faust engine imports aiokafka.

Every error is raised as a ``LogError``. Agents load this package, so it needs neither numpy nor Faust.
"""

# isort: off
from slacktide.streams.kafka import patches  # first: what follows uses the client as it is changed there

# isort: on
from slacktide.streams.kafka.admin import (
    TopicState,
    absence,
    create_topics,
    describe_topics,
    group_lag,
    partition_counts,
    present,
)
from slacktide.streams.kafka.connecting import METADATA_MS
from slacktide.streams.kafka.group import ASSIGNORS, POLL_RECORDS_MAX, Group, committed, leave, notes
from slacktide.streams.kafka.history import Follower, History, Lost, Merged, Span, Spans
from slacktide.streams.kafka.node_reader import NodeReader
from slacktide.streams.kafka.reader import Ends, Picked, each_answer, partition_of, record_of
from slacktide.streams.kafka.rendered import Rendered
from slacktide.streams.kafka.sender import COMPRESSED_BYTES_MAX, PLAIN_BYTES_MAX, Placed, Refused, Sender
from slacktide.streams.kafka.tail import (
    TAIL_RECORDS_MAX,
    WHOLE,
    Following,
    Place,
    Read,
    Tail,
    TailReader,
    last_of_each_key,
    places_of,
    read_topic,
)

__all__ = [
    "ASSIGNORS",
    "COMPRESSED_BYTES_MAX",
    "METADATA_MS",
    "PLAIN_BYTES_MAX",
    "POLL_RECORDS_MAX",
    "TAIL_RECORDS_MAX",
    "WHOLE",
    "Ends",
    "Follower",
    "Following",
    "Group",
    "History",
    "Lost",
    "Merged",
    "NodeReader",
    "Picked",
    "Place",
    "Placed",
    "Read",
    "Refused",
    "Rendered",
    "Sender",
    "Span",
    "Spans",
    "Tail",
    "TailReader",
    "TopicState",
    "absence",
    "committed",
    "create_topics",
    "describe_topics",
    "each_answer",
    "group_lag",
    "last_of_each_key",
    "leave",
    "notes",
    "partition_counts",
    "partition_of",
    "patches",
    "places_of",
    "present",
    "read_topic",
    "record_of",
]
