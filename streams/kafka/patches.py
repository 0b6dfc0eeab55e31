"""All changes that Slacktide makes to aiokafka. They replace internals of aiokafka 0.14.

The package imports this module first, so each process that uses Kafka has them all.
"""

from functools import partial

import aiokafka
from aiokafka import client, conn
from aiokafka.admin import client as admin
from aiokafka.consumer import consumer, fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.producer import message_accumulator
from aiokafka.protocol.metadata import MetadataRequest

from slacktide.streams.kafka import connecting, fetched, gathering

WRITTEN_FOR = "0.14."
"""Prefix of supported versions; ``pyproject.toml`` and the lock file name the same."""

READER_BYTES = 4 << 20
"""The client buffers a complete response in any case."""


def install() -> None:
    """Change aiokafka. A second call has no effect. Raises ImportError if another version of aiokafka is installed."""
    check_version(aiokafka.__version__)
    # By default a broker creates a requested topic, with its default number of partitions. Only `slacktide topics
    # apply` creates topics: a deleted topic stays deleted.
    client.MetadataRequest = admin.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)
    # The client's error does not contain why it cannot connect.
    client.create_conn = connecting.create_conn
    client.NodeNotReadyError = connecting.NotReadyError
    client.AIOKafkaClient.bootstrap = connecting.bootstrap
    # The client leaves connections open that were made while it was closed.
    client.AIOKafkaClient.close = connecting.close
    # The client fails with an AttributeError while a cluster has no controller.
    admin.AIOKafkaAdminClient._send_to_controller = connecting.send_to_controller  # noqa: SLF001
    # The client takes a refused token for an accepted one.
    conn.OAuthAuthenticator = connecting.TokenLogin
    # The client pauses its socket every 128 kB, fifty times in a fetch of 6 MB.
    conn.READER_LIMIT = READER_BYTES
    # The client copies all written bytes eight times.
    connecting.write_in_pieces()
    # A consumer of the client stops at an unreadable batch.
    fetcher.MemoryRecords, fetcher.PartitionRecords = fetched.FetchedBytes, fetched.FetchedRecords
    # The client fetches whenever a record arrives.
    consumer.Fetcher = gathering.GatheringFetcher
    # The client leaves errors that nobody looks at: of a commit whose member was cancelled, and of a batch for whose
    # turn nobody waits.
    GroupCoordinator._do_commit_offsets = connecting.commit  # noqa: SLF001
    message_accumulator.create_future = connecting.unwatched_future


def check_version(installed: str) -> None:
    """Refuse a client whose internals may differ. Raises ImportError, which names the version to install."""
    if not installed.startswith(WRITTEN_FOR):
        raise ImportError(
            f"aiokafka {installed} is installed, and Slacktide changes internals of aiokafka {WRITTEN_FOR}x: "
            f'pip install "aiokafka=={WRITTEN_FOR}*"'
        )


install()
