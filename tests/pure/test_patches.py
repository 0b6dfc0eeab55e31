"""The changes to aiokafka: made in each process, and for no other version than they are written for."""

from __future__ import annotations

import asyncio
import struct
import tomllib
from pathlib import Path

import aiokafka.client
import pytest
from aiokafka.protocol.metadata import MetadataRequest_v5

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka import Sender, patches

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def test_no_request_for_metadata_creates_a_topic() -> None:
    for made in (aiokafka.client.MetadataRequest(["t"]), aiokafka.admin.client.MetadataRequest(["t"])):
        assert made.build(MetadataRequest_v5).allow_auto_topic_creation is False


@pytest.mark.parametrize("other", ["0.13.0", "0.15.0", "1.0"])
def test_another_version_of_the_client_is_refused_with_what_to_do(other: str) -> None:
    with pytest.raises(ImportError, match=rf'aiokafka {other} is installed.*pip install "aiokafka==0\.14\.\*"'):
        patches.check_version(other)


def test_what_is_installed_is_what_they_are_written_for() -> None:
    patches.check_version(aiokafka.__version__)

    assert "aiokafka>=0.14,<0.15" in PYPROJECT["project"]["dependencies"]
    assert patches.WRITTEN_FOR == "0.14."


async def test_a_connection_attempt_that_is_given_up_leaves_no_connection_open() -> None:
    """The broker accepts the connection and says what it can, and never sends metadata."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        (correlation,) = struct.unpack_from(">i", await reader.readexactly(size), 4)
        versions = [(3, 0, 5), (18, 0, 0)]
        body = struct.pack(">ihi", correlation, 0, len(versions)) + b"".join(struct.pack(">hhh", *v) for v in versions)
        writer.write(struct.pack(">i", len(body)) + body)
        while await reader.read(4096):
            pass
        closed.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Sender(Cluster(f"{host}:{port}"), client_id="test", timeout_s=9.0).connect(()), 0.2)
        await asyncio.wait_for(closed.wait(), 2.0)
