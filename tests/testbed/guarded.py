"""Apache Kafka with an authorizer, and a door to it for each part that logs in on the part's behalf.

Slacktide's connections are plain. A door is what such a connection meets in a cluster that asks who it is: it takes
plain bytes, logs in by SASL/PLAIN as the part whose door it is, and then only passes bytes on.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import shlex
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest, CreateAclsRequest_v1
from aiokafka.protocol.api import Request

from slacktide.schemas.access import PARTS

from .brokers import KafkaBroker, free_port

GUARDED = """
listeners=PLAINTEXT://{bootstrap},CONTROLLER://{controller},{listeners}
advertised.listeners=PLAINTEXT://{bootstrap},{advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}
sasl.enabled.mechanisms=PLAIN
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""
"""Whoever comes without a name, as tests and the broker itself do, may do all."""
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LITERAL, ALLOW = 3, 3
RESOURCES = {"topic": 2, "group": 3, "cluster": 4}
OPERATIONS = {
    "Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10, "AlterConfigs": 11,
    "IdempotentWrite": 12,
}  # fmt: skip
"""As the protocol numbers them."""


class GuardedKafka(KafkaBroker):
    """One broker; by the name of each part the address of its door."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        ports = {part.name: free_port() for part in PARTS}
        self._doors = {part.name: _Door(part.principal.removeprefix("User:"), ports[part.name]) for part in PARTS}
        self.doors = {name: f"127.0.0.1:{door.port}" for name, door in self._doors.items()}
        controller = self._properties.read_text().partition("CONTROLLER://")[2].partition("\n")[0]
        lines = GUARDED.format(
            bootstrap=self.bootstrap,
            controller=controller,
            listeners=",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()),
            advertised=",".join(f"{name.upper()}://{address}" for name, address in self.doors.items()),
            protocols=",".join(f"{name.upper()}:SASL_PLAINTEXT" for name in ports),
        )
        for name, door in self._doors.items():
            lines += f'listener.name.{name}.plain.sasl.jaas.config={LOGIN} required user_{door.user}="{door.user}";\n'
        with self._properties.open("a") as properties:  # of a property that stands there twice the last one holds
            properties.write(lines)

    def start(self) -> None:
        """Start it, and open the doors."""
        super().start()
        for door in self._doors.values():
            door.open()

    def stop(self, *how: Any) -> None:
        """Close the doors, and end it."""
        for door in self._doors.values():
            door.close()
        super().stop(*how)

    def grant(self, commands: str) -> None:
        """Do what these lines of ``kafka-acls`` say, as its tool does. In a thread, with a loop of its own."""
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._grant(commands)).result()

    async def _grant(self, commands: str) -> None:
        client = AIOKafkaClient(bootstrap_servers=self.bootstrap)
        await client.bootstrap()
        try:
            answer = await client.send(client.get_random_node(), _Create(_acls(commands)))
        finally:
            await client.close()
        assert [error for error, _ in answer.creation_responses if error] == []


class _Create(Request[CreateAclsRequest_v1]):
    """Many at once; aiokafka's own makes one."""

    API_KEY = CreateAclsRequest.API_KEY

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._rows = list(rows)

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class(self._rows)


def _acls(commands: str) -> Iterable[tuple[Any, ...]]:
    """What the tool makes of its arguments: each operation on each resource."""
    parser = argparse.ArgumentParser(prog="kafka-acls", allow_abbrev=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True, choices=OPERATIONS)
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--cluster", action="store_const", const=["kafka-cluster"], default=[])
    for line in commands.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "kafka-acls", line
        asked = parser.parse_args(words[1:])
        for kind, number in RESOURCES.items():
            for name in getattr(asked, kind):
                for operation in asked.operation:
                    yield number, name, LITERAL, asked.allow_principal, "*", OPERATIONS[operation], ALLOW


class _Door:
    """One part's way in. It lives on a loop of its own: who comes may be of any thread or process."""

    def __init__(self, user: str, listener: int) -> None:
        self.user = user
        self.port = free_port()
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to let in."""
        opened = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(opened),), daemon=True)
        self._thread.start()
        opened.wait()

    def close(self) -> None:
        """Let nobody in any more, and end what goes on."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
            self._loop = None

    async def _serve(self, opened: threading.Event) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._let_in, "127.0.0.1", self.port)
        opened.set()
        await self._closing.wait()
        server.close()  # asyncio.run ends those that are in

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            within, out = await asyncio.open_connection("127.0.0.1", self._listener)
            with contextlib.closing(out):
                mechanism, token = b"PLAIN", f"\0{self.user}\0{self.user}".encode()
                await _asked(within, out, SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
                await _asked(within, out, SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
                passing = {asyncio.ensure_future(_pass(reader, out)), asyncio.ensure_future(_pass(within, writer))}
                try:
                    await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for one in passing:
                        one.cancel()


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, version: int, body: bytes
) -> None:
    request = struct.pack(">hhih", key, version, 0, -1) + body
    writer.write(struct.pack(">i", len(request)) + request)
    [size] = struct.unpack(">i", await reader.readexactly(4))
    [error] = struct.unpack_from(">h", await reader.readexactly(size), 4)
    if error:
        raise ConnectionError(f"the broker refuses to know us: error {error}")


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while got := await reader.read(1 << 16):
            writer.write(got)
            await writer.drain()
