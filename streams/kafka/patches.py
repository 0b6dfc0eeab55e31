"""Every change that Slacktide makes to aiokafka. They are written for aiokafka 0.14, whose internals they replace.

The package imports this module first, so each process that uses Kafka has them all.
"""

from __future__ import annotations

from functools import partial

import aiokafka
from aiokafka import client, conn
from aiokafka.admin import client as admin
from aiokafka.consumer import consumer, fetcher
from aiokafka.protocol.metadata import MetadataRequest

from slacktide.streams.kafka import connecting, fetched, gathering, producing

WRITTEN_FOR = "0.14."
"""Versions that begin so; ``pyproject.toml`` and the lock file name the same."""

READER_BYTES = 4 << 20
"""The client holds the whole of what it awaits in any case."""


def install() -> None:
    """Change aiokafka. A second call has no effect.

    Raises:
        ImportError: another version of aiokafka is installed.

    """
    check_version(aiokafka.__version__)
    # A broker with default settings creates a topic that a client asks for, with its default number of partitions.
    # Topics are created by `slacktide topics apply` alone: a topic that is deleted stays deleted.
    client.MetadataRequest = admin.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)
    # The client logs why it cannot connect; its error does not have the reason.
    client.create_conn = connecting.create_conn
    client.NodeNotReadyError = connecting.NotReadyError
    client.AIOKafkaClient.bootstrap = connecting.bootstrap
    # The client leaves connections open that it made while it was given up or closed.
    client.AIOKafkaClient.close = connecting.close
    # The client takes a refused token for an accepted one.
    conn.OAuthAuthenticator = connecting.TokenLogin
    # The client stops reading from its socket each 128 kB, and resumes: fifty times in a fetch of 6 MB.
    conn.READER_LIMIT = READER_BYTES
    # The client copies all that it writes eight times.
    producing.install()
    # A batch that the client cannot read stops its consumer there.
    fetcher.MemoryRecords, fetcher.PartitionRecords = fetched.FetchedBytes, fetched.FetchedRecords
    # The client fetches as often as something comes.
    consumer.Fetcher = gathering.GatheringFetcher


def check_version(installed: str) -> None:
    """Refuse a client whose internals may be other ones.

    Raises:
        ImportError: with what to install instead.

    """
    if not installed.startswith(WRITTEN_FOR):
        raise ImportError(
            f"aiokafka {installed} is installed, and Slacktide changes internals of aiokafka {WRITTEN_FOR}x: "
            f'pip install "aiokafka=={WRITTEN_FOR}*"'
        )


install()
