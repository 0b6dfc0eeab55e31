"""Apache Kafka that asks who it is: TLS, logins, an authorizer; and a file for each part that says how to get in."""

import argparse
import asyncio
import base64
import concurrent.futures
import json
import shlex
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest, CreateAclsRequest_v1, DeleteAclsRequest
from aiokafka.protocol.api import Request

from slacktide.agents.clock import SystemClock
from slacktide.schemas.access import PARTS
from slacktide.schemas.connection import Cluster, parse

from .brokers import KafkaBroker, free_port
from .filled import filled
from .kubelet import Certificates

READER, PASSWORD = "slacktide-reader", "open=#sesame"
LITERAL, ALLOW, DENY = 3, 3, 2
RESOURCES = {"topic": 2, "group": 3, "cluster": 4}
OPERATIONS = {
    "Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10, "AlterConfigs": 11,
    "IdempotentWrite": 12,
}  # fmt: skip
"""As the protocol numbers them."""


class GuardedKafka(KafkaBroker):
    """One broker. Each part is a user of its own by SCRAM; the reader also by PLAIN, a token, or a certificate.

    At the door ``alias`` it calls itself by a name that its certificate is not for.
    """

    def __init__(self, folder: Path) -> None:
        self.login, self.mutual, self.alias = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.certificates = Certificates(folder / "certificates")
        users = [part.principal.removeprefix("User:") for part in PARTS]
        scram = [f"SCRAM-SHA-{bits}=[name={user},password={PASSWORD}]" for user in users for bits in (256, 512)]
        super().__init__(folder, format_options=[word for one in scram for word in ("--add-scram", one)])
        pair = self.certificates.server_key, self.certificates.server
        (folder / "broker.pem").write_text("".join(path.read_text() for path in pair))
        controller = self._properties.read_text().partition("CONTROLLER://")[2].partition("\n")[0]
        lines = filled(
            "kafka-guarded.properties",
            bootstrap=self.bootstrap,
            controller=controller,
            login=self.login,
            mutual=self.mutual,
            alias=self.alias,
            alias_port=self.alias.partition(":")[2],
            reader=READER,
            password=PASSWORD,
            folder=folder,
            ca=self.certificates.ca,
        )
        with self._properties.open("a") as properties:  # of a property that stands there twice the last one holds
            properties.write(lines)
        self.doors = {
            part.name: self.door(f"{part.name}.conf", self.as_user(user))
            for part, user in zip(PARTS, users, strict=True)
        }
        """By the name of a part the brokers as it reaches them; the file is ``doors[name].security.file``."""

    def as_user(self, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def with_token(self, life_s: float = 3600, user: str = READER) -> dict[str, str]:
        """What a file says for a login with a token, which nobody signed, as Kafka takes it where it is tried out."""
        token, now_s = self.folder / "token", SystemClock().wall_ms() // 1000
        parts = {"alg": "none"}, {"sub": user, "iat": now_s - 7200, "exp": now_s + life_s}
        encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        token.write_text(".".join(encoded) + ".\n")
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"file://{token}",
        }

    def with_certificate(self) -> dict[str, str]:
        """What a file says for whoever shows a certificate and has no other name, at the door ``mutual``."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "ssl.certificate.location": str(self.certificates.client),
            "ssl.key.location": str(self.certificates.client_key),
        }

    def door(self, name: str, lines: dict[str, str], address: str = "") -> Cluster:
        """Cluster as they are reached by a file with these lines."""
        file = self.folder / name
        file.touch(0o600)
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return Cluster(address or self.login, parse(file.read_text(), str(file), {}))

    def grant(self, commands: str) -> None:
        """Do what these lines of ``kafka-acls`` say, as its tool does. In a thread, with a loop of its own."""
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._grant(commands)).result()

    async def _grant(self, commands: str) -> None:
        answer = await self._send(_Create(_acls(commands)))
        assert [error for error, _ in answer.creation_responses if error] == []

    @asynccontextmanager
    async def group_denied(self, principal: str, group: str) -> AsyncIterator[None]:
        """Meanwhile a user may not be a member of a group, whatever was granted."""
        async with self._denied(principal, "group", group, "Read"):
            yield

    @asynccontextmanager
    async def topic_denied(self, principal: str, topic: str, operation: str) -> AsyncIterator[None]:
        """Meanwhile a user may not do this with a topic, whatever was granted."""
        async with self._denied(principal, "topic", topic, operation):
            yield

    @asynccontextmanager
    async def _denied(self, principal: str, kind: str, name: str, operation: str) -> AsyncIterator[None]:
        denied = RESOURCES[kind], name, LITERAL, principal, "*", OPERATIONS[operation], DENY
        await self._send(CreateAclsRequest(*denied))
        try:
            yield
        finally:
            await self._send(DeleteAclsRequest(*denied))

    async def _send(self, request: Request[Any]) -> Any:
        client = AIOKafkaClient(bootstrap_servers=self.bootstrap)
        await client.bootstrap()
        try:
            return await client.send(client.get_random_node(), request)
        finally:
            await client.close()


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
