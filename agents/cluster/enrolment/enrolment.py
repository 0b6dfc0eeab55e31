"""The HTTPS server of one replica of the bridge that issues keys to agents. Every replica serves it, leader or not.

It handles one bounded request per connection from untrusted clients.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from prometheus_client import Counter, Gauge

from slacktide.agents.cluster.certificates import CertificateManager, SecretPlace, Terms, Tls
from slacktide.agents.cluster.enrolment.issuer import Issuer, NoKeyError, NotAnAgentError, Ring
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFIGMAPS, CONFLICT, IgnoreStatus
from slacktide.agents.listening import listening
from slacktide.schemas.codec import encode
from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.proof import ENROL_PATH
from slacktide.schemas.text import integer_of

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 16 * 1024
"""A pod-bound token has 1 to 2 KiB."""
BODY_BYTES_MAX = 1024
REQUEST_S = 5.0
"""For the handshake, and again for the request."""
ANSWER_S = 20.0
CONNECTIONS_MAX = 256
RATE_PER_S, BURST = 50.0, 200.0
"""10,000 agents that enrol twice a day make one request in four seconds."""
RETRY_AFTER_S = 10


class ServerError(SlacktideError):
    """The server cannot listen on the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response."""

    status: HTTPStatus
    body: bytes = b""


class Bucket:
    """A token bucket."""

    def __init__(self, now_s: Callable[[], float], rate: float = RATE_PER_S, burst: float = BURST) -> None:
        self._now_s, self._rate, self._burst = now_s, rate, burst
        self._left, self._at_s = burst, now_s()

    def take(self) -> bool:
        """Return whether one more request is allowed."""
        now_s = self._now_s()
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


@asynccontextmanager
async def serving(
    answer: Callable[[str], Awaitable[Reply]], context: ssl.SSLContext, host: str, port: int
) -> AsyncIterator[int]:
    """Serve until left; yields the port. ``answer`` handles a bearer token, and does not raise. Port 0: any free port.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    asked = _Asked(answer)
    try:
        server = await asyncio.start_server(
            asked.handle, sock=listening(host, port), ssl=context, ssl_handshake_timeout=REQUEST_S, limit=HEAD_BYTES_MAX
        )
    except OSError as exc:
        raise ServerError(f"{host}:{port}: {exc.strerror}; choose another port with --enrol-port") from exc
    async with server:
        yield server.sockets[0].getsockname()[1]


class _Asked:
    def __init__(self, answer: Callable[[str], Awaitable[Reply]]) -> None:
        self._answer = answer
        self._open = 0
        self._bucket = Bucket(asyncio.get_running_loop().time)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        self._open += 1
        try:
            reply = await self._reply(reader)
            if reply is not None:
                writer.write(_encoded(reply))
                async with asyncio.timeout(REQUEST_S):
                    await writer.drain()
        except (OSError, TimeoutError):
            pass  # the client disconnected or timed out
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(REQUEST_S):
                    await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader) -> Reply | None:
        if self._open > CONNECTIONS_MAX or not self._bucket.take():
            return Reply(status=HTTPStatus.TOO_MANY_REQUESTS)
        try:
            async with asyncio.timeout(REQUEST_S):
                token = await _token_in(reader)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            return None
        if isinstance(token, Reply):
            return token
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._answer(token)
        except TimeoutError:
            return Reply(status=HTTPStatus.GATEWAY_TIMEOUT)


async def _token_in(reader: asyncio.StreamReader) -> str | Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    try:
        await reader.readexactly(integer_of(length, where="Content-Length", least=0, most=BODY_BYTES_MAX))
    except TextError:
        return Reply(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if first.split(" ")[:2] != ["POST", ENROL_PATH]:
        return Reply(status=HTTPStatus.NOT_FOUND)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return Reply(status=HTTPStatus.UNAUTHORIZED)
    return token.strip()


def _encoded(reply: Reply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        "Content-Type: application/json",
        "Cache-Control: no-store",
        "Connection: close",
        f"Content-Length: {len(reply.body)}",
    ]
    if reply.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    return "\r\n".join([*lines, "", ""]).encode() + reply.body


SERVICE = "slacktide-bridge"
SECRET = "slacktide-enrolment-tls"  # noqa: S105 - its name
CONFIG_MAP = "slacktide-enrolment-ca"
SETTLE_MS = 600_000
"""Time for kubelets and agents to load a changed bundle before its certificate is served."""
LOOK_S, RETRY_S = 10.0, 2.0
BUNDLE_KEY = "ca.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentSettings:
    """Settings of one replica."""

    namespace: str
    """Namespace of the Service, both Secrets, the ConfigMap and the agents."""
    host: str
    port: int
    terms: Terms | None = None
    """Lifetime of certificates; None: the default, for the Service's names."""
    look_s: float = LOOK_S


def names_of(namespace: str) -> frozenset[str]:
    """DNS names of the Service."""
    service = f"{SERVICE}.{namespace}.svc"
    return frozenset({service, f"{service}.cluster.local"})


class Enrolment:
    """Enrols agents."""

    def __init__(self, api: ApiServer, settings: EnrolmentSettings, ring: Ring, now_ms: Callable[[], int]) -> None:
        self.trouble = ""
        """Why agents cannot enrol, or soon cannot; "": they can."""
        self.port = 0
        self._settings = settings
        namespace = settings.namespace
        terms = settings.terms or Terms(names=names_of(namespace), settle_ms=SETTLE_MS)
        place = SecretPlace(namespace=namespace, name=SECRET, component="bridge")
        self._ring = ring
        self._certificates = CertificateManager(api, place, PublishedBundle(api, namespace, CONFIG_MAP), terms, now_ms)
        self._issuer = Issuer(api, namespace, ring.keys, now_ms)

    async def run(self) -> None:
        """Serve until cancelled."""
        tls = await self._first()
        async with serving(self._answer, tls.context, self._settings.host, self._settings.port) as port:
            self.port = port
            log.info("serving enrolment", extra={"host": self._settings.host, "port": port})
            while True:
                await asyncio.sleep(self._settings.look_s)
                try:
                    tls.serve(await self._certificates.look())
                except SlacktideError as exc:
                    self._report(str(exc))
                else:
                    self._report("")

    async def _first(self) -> Tls:
        while True:
            try:
                return Tls(await self._certificates.look(), CERTIFICATE_UNTIL.set)
            except SlacktideError as exc:
                self._report(str(exc))
                await asyncio.sleep(RETRY_S)

    def _report(self, why: str) -> None:
        if why and why != self.trouble:
            log.warning("cannot renew the enrolment's certificate", extra={"why": why})
        self.trouble = why

    async def _answer(self, token: str) -> Reply:
        """Refusals do not reveal the token; the reason is in this process's log."""
        try:
            enrolled = await self._issuer.enrol(token)
        except NotAnAgentError as exc:
            ENROLMENTS.labels("refused").inc()
            log.warning("refused an enrolment", extra={"why": str(exc)})
            return Reply(status=HTTPStatus.FORBIDDEN, body=str(exc).encode())
        except NoKeyError as exc:
            ENROLMENTS.labels("failed").inc()
            return Reply(status=HTTPStatus.SERVICE_UNAVAILABLE, body=str(exc).encode())
        except SlacktideError as exc:
            ENROLMENTS.labels("failed").inc()
            log.warning("cannot review a token", extra={"why": str(exc)})
            return Reply(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"the API server could not review the token")
        ENROLMENTS.labels("enrolled").inc()
        return Reply(status=HTTPStatus.OK, body=encode(enrolled))


async def follow(ring: Ring, look_s: float = LOOK_S) -> None:
    """Refresh the ring until cancelled."""
    logged = ""
    while True:
        try:
            await ring.look()
            logged = ""
        except SlacktideError as exc:
            if str(exc) != logged:
                log.warning("cannot read the cluster keys", extra={"why": str(exc)})
            logged = str(exc)
        await asyncio.sleep(look_s if ring.keys() else RETRY_S)


class PublishedBundle:
    """The ConfigMap with the CA bundle for enrolling agents, which the manifests create."""

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name

    async def read(self) -> dict[str, Any]:
        """Read the ConfigMap. Raises ApiError if the read failed."""
        found: dict[str, Any] = await self._api.get(CONFIGMAPS, self._name, dict[str, Any], namespace=self._namespace)
        return found

    async def have(self, read: dict[str, Any], bundle: bytes) -> bool:
        """Publish the bundle; False: the ConfigMap changed since it was read. Raises ApiError if the write failed."""
        text = bundle.decode()
        if (read.get("data") or {}).get(BUNDLE_KEY) == text:
            return True
        body = {"metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}, "data": {BUNDLE_KEY: text}}
        with IgnoreStatus(CONFLICT):
            await self._api.patch(CONFIGMAPS, self._name, body, dict[str, Any], namespace=self._namespace)
            return True
        return False


ENROLMENTS = Counter("slacktide_bridge_enrolments", "Requests of agents for a key, by result.", ["result"])
CERTIFICATE_UNTIL = Gauge(
    "slacktide_bridge_enrolment_certificate_expiry_timestamp_seconds",
    "Unix time at which the served certificate expires.",
)

for _result in ("enrolled", "refused", "failed"):
    ENROLMENTS.labels(_result)
