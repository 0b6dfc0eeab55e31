"""Connects and closes aiokafka's clients: TLS, login, and the reason why a connection failed.

The client logs why it cannot connect, and raises an error without that reason. ``patches`` wraps its functions so that
the error contains it. Clients close in bounded time. Produce requests are written in pieces, without copies: the client
joins the bytes of each level of a request into the next, and twice more before it writes, so it copies all bytes eight
times. A worker writes more than a megabyte per request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final
from weakref import WeakSet

from aiokafka import client as aiokafka
from aiokafka import conn
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    NotControllerError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol import produce
from aiokafka.protocol.types import Int16, Int32, Schema, String

from slacktide.schemas.connection import TOKEN_URL, Cluster, Security
from slacktide.schemas.errors import ConfigError, Finding, LogError
from slacktide.streams.tasks import given_up, unwatched

METADATA_MS = 30_000
"""Within this time a client notices new partitions and leaders."""


def client(bootstrap: Cluster) -> dict[str, Any]:
    """Return the settings with which each client is made. Certificates are read each time, because they are renewed.

    Raises LogError if they cannot be read any more.
    """
    security = bootstrap.security
    made: dict[str, Any] = {"bootstrap_servers": str(bootstrap), "security_protocol": security.protocol}
    if security.encrypted:
        try:
            made["ssl_context"] = tls(security)
        except ConfigError as exc:
            raise LogError(str(exc)) from exc
    if security.logs_in:
        made["sasl_mechanism"] = security.mechanism
    if security.token_url:
        made["sasl_oauth_token_provider"] = _Token(security.token_url)
    elif security.logs_in:
        made |= {"sasl_plain_username": security.username, "sasl_plain_password": security.password}
    return made


def tls(security: Security) -> ssl.SSLContext:
    """Return a TLS context with the trusted CA and the client certificate.

    Raises ConfigError if a file is missing or invalid.
    """
    for key, path in (
        ("ssl.ca.location", security.ca),
        ("ssl.certificate.location", security.certificate),
        ("ssl.key.location", security.key),
    ):
        if path:
            try:
                Path(path).open("rb").close()
            except OSError as exc:
                raise _unusable(security, key, f"{path}: {exc.strerror}", "a PEM file that can be read") from exc
    accepted = "a PEM file"
    key, path = "ssl.ca.location", security.ca
    try:
        context = ssl.create_default_context(cafile=security.ca or None)
        context.check_hostname = security.names != "none"
        if security.certificate:
            key, path = "ssl.certificate.location", security.certificate
            accepted = (
                "a PEM file, with its key at ssl.key.location, and with ssl.key.password if the key has a password"
            )
            # Always a password: without one OpenSSL would prompt at the terminal.
            context.load_cert_chain(security.certificate, security.key, security.key_password)
    except (OSError, ValueError) as exc:
        raise _unusable(security, key, f"{path}: {getattr(exc, 'reason', None) or exc}", accepted) from exc
    return context


def _unusable(security: Security, key: str, value: str, accepted: str) -> ConfigError:
    return ConfigError([Finding(file=security.file or "environment", field=key, value=value, accepted=accepted)])


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # the client has no types
    """Reads the token from its file each time: kubelet renews projected tokens."""

    def __init__(self, url: str) -> None:
        self._file = Path(url.removeprefix(TOKEN_URL))

    async def token(self) -> str:
        return self._file.read_text(errors="replace").strip()


class TokenLogin(conn.OAuthAuthenticator):  # type: ignore[misc]  # the client has no types
    """Replaces the client's, which takes a refusal for success: RFC 7628, 3.2.3 requires a request for the reason."""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next message; None: no more."""
        if payload:
            return b"\x01", True
        answered: tuple[bytes, bool] | None = await super().step(payload)
        return answered


class _Logged:
    args: tuple[object, ...]

    def __str__(self) -> str:
        return str(self.args[0])

    __repr__ = __str__


class _RefusedError(_Logged, KafkaConnectionError):  # type: ignore[misc]
    """None of the bootstrap brokers accepts the connection."""


class NotReadyError(_Logged, NodeNotReadyError):  # type: ignore[misc]
    """A broker of the cluster no longer accepts connections, or never did at its advertised address."""

    def __init__(self, text: str) -> None:
        super().__init__(_unreachable() or text)


def reason_of(exc: BaseException) -> str:
    """Return the text of an error, with the unreachable brokers if it does not name them."""
    return repr(exc) if isinstance(exc, _Logged) else _beside(repr(exc))


def silent(within_s: float) -> str:
    """Return the text for a cluster that has not answered, with its unreachable brokers."""
    return _beside(f"no answer within {within_s:g} s")


def _beside(text: str) -> str:
    unreachable = _unreachable()
    return f"{text}; {unreachable}" if unreachable else text


def _unreachable() -> str:
    return "; ".join(f"{host}:{port}: {why}" for (host, port), why in _why.items())


_connect = aiokafka.create_conn
_bootstrap, _close = aiokafka.AIOKafkaClient.bootstrap, aiokafka.AIOKafkaClient.close
_why: dict[tuple[str, int], str] = {}
"""By address, why the connection failed that was tried since the last one that succeeded."""
_opened: dict[asyncio.Task[Any] | None, list[Any]] = {}
"""By task that bootstraps a client, the connections that it has opened."""
_closed: WeakSet[Any] = WeakSet()


async def create_conn(host: str, port: int, **how: Any) -> Any:
    """Connect as the client does, and remember why it failed. A client that was closed meanwhile gets no connection.

    The connection's writer accepts produce requests in pieces. Raises KafkaConnectionError if the client was closed, or
    the broker refused.
    """
    try:
        made = await _connect(host, port, **how)
    except (OSError, KafkaError, TimeoutError) as exc:
        _why[host, port] = _reason(exc, how)
        raise
    _why.clear()  # a broker that moved is never tried again at its old address; one that is away, soon
    if getattr(how.get("on_close"), "__self__", None) in _closed:
        made.close()
        raise KafkaConnectionError("the client was closed")
    _opened.get(asyncio.current_task(), []).append(made)
    made._writer = PiecesWriter(made._writer)  # noqa: SLF001 - the client has no other place for it
    return made


async def close(self: Any) -> None:
    """Close a client, also connections that are still being made, and end even if cancelled."""
    _closed.add(self)
    await to_its_end(_close(self))


async def bootstrap(self: Any) -> None:
    """Bootstrap a client, with an error that has the reason. A cancellation leaves no connection open.

    Raises KafkaConnectionError if none of the brokers is reachable.
    """
    task = asyncio.current_task()
    _opened[task] = []
    _closed.discard(self)
    try:
        await _bootstrap(self)
    except asyncio.CancelledError:
        for connection in _opened[task]:
            connection.close()
        raise
    except KafkaConnectionError as exc:
        whys = {f"{host}:{port}": _why.get((host, port), _ENDED) for host, port, _ in self.hosts}
        texts = [f"{address}: {why}" for address, why in whys.items()] if len(whys) > 1 else [*whys.values()]
        raise _RefusedError("; ".join(texts)) from exc
    finally:
        del _opened[task]


_ENDED = (
    "it closed the connection; check with --kafka-config, security.protocol, whether this port requires TLS or a login"
)


_LOOK = "check that the broker runs, and that --bootstrap can be reached from here"


def _reason(exc: BaseException, how: dict[str, Any]) -> str:
    if isinstance(exc, KafkaConnectionError) and isinstance(exc.__cause__, OSError):
        exc = exc.__cause__  # with TLS 1.3 a broker refuses a client certificate after the handshake
    mechanism, user = how["sasl_mechanism"], how["sasl_plain_username"]
    match exc:
        case ssl.SSLCertVerificationError():
            text = (
                f"its certificate could not be verified ({exc.verify_message}): set ssl.ca.location to the CA "
                "that signed it, and --bootstrap to a name in it"
            )
        case ssl.SSLError():
            text = (
                f"TLS failed ({exc.reason or exc}): check that this port accepts TLS, and whether it requires "
                "or accepts the certificate at ssl.certificate.location"
            )
        case SaslAuthenticationFailed():
            answered = ", ".join(str(one) for one in exc.args if one)
            what = "sasl.username, sasl.password" if user else "sasl.oauthbearer.token.endpoint.url"
            text = f"login{f' as {user}' if user else ''} by {mechanism} refused ({answered}): {what}"
        case UnsupportedSaslMechanismError() | IllegalSaslStateError():
            text = f"its port does not accept a login by {mechanism}: set another sasl.mechanism"
        case KafkaConnectionError() | ConnectionResetError() | BrokenPipeError():
            text = _ENDED
        case OSError():
            text = f"{exc.strerror or str(exc) or 'no answer'}; {_LOOK}"
        case _:
            text = str(exc) or type(exc).__name__
    return text


CLOSE_S = 2.0


async def abandon(producer: Any) -> None:
    """Close a producer without sending its queue, which its own ``stop`` would do, possibly forever."""
    producer._closed = True  # noqa: SLF001 - as its stop does
    await to_its_end(_in_turn(producer._sender.close(), producer.client.close()))  # noqa: SLF001


async def close_consumer(consumer: Any) -> None:
    """Close a consumer; a member of a group leaves it."""
    # An interrupted stop would leave the metadata task running forever.
    await to_its_end(_in_turn(consumer.stop(), consumer._client.close()))  # noqa: SLF001


_commit_offsets = GroupCoordinator._do_commit_offsets  # noqa: SLF001 - before it is replaced


def commit(coordinator: Any, assignment: Any, offsets: Any) -> asyncio.Task[None]:
    """Commit in a task that outlives a cancellation, as the client does."""
    committing: asyncio.Task[None] = asyncio.create_task(_commit_offsets(coordinator, assignment, offsets))
    unwatched(committing)
    return committing


_send_to_controller = AIOKafkaAdminClient._send_to_controller  # noqa: SLF001 - before it is replaced


async def send_to_controller(admin: Any, request: Any) -> Any:
    """Send a request as the client does.

    Raises NotControllerError, which passes, while the cluster has no controller; the client's is an AttributeError.
    """
    try:
        return await _send_to_controller(admin, request)
    except AttributeError as exc:
        if admin._client.cluster.controller is not None:  # noqa: SLF001
            raise
        raise NotControllerError("the cluster has no controller") from exc


def unwatched_future() -> asyncio.Future[Any]:
    """Return a future whose error is not reported where nobody waits for it."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    unwatched(future)
    return future


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait until the work has ended; raise a cancellation only then."""
    closing = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.wait({closing})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        unwatched(closing)
        raise cancelled
    closing.result()


async def _in_turn(stop: Coroutine[Any, Any, None], close_client: Coroutine[Any, Any, None]) -> None:
    """Wait a limited time until the client has stopped, and ignore its errors; then close its connections.

    In a separate task, because a stop may raise CancelledError of its own fetches.
    """
    stopping = asyncio.create_task(stop)
    await asyncio.wait({stopping}, timeout=CLOSE_S)
    given_up(stopping)
    await asyncio.wait({stopping}, timeout=CLOSE_S)
    await close_client


_TEXT: Final = String("utf-8")
_PART: Final = Struct(">ii")
_ORIGINAL: Final = produce.ProduceRequest_v3.SCHEMA
"""Of all versions from 3 on: one object."""


class Pieces:
    """Bytes to write one after the other. The client prepends others with ``+``, and calls ``len``."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        """Return the number of bytes."""
        return sum(map(len, self.parts))

    def __radd__(self, before: bytes) -> Pieces:
        """Return the pieces with other bytes before them."""
        return Pieces([before, *self.parts])


class PiecesWriter:
    """The writer of a connection, which also accepts ``Pieces``."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes | Pieces) -> None:
        """Write bytes, or pieces without joining them."""
        if isinstance(data, Pieces):
            self._writer.writelines(data.parts)
        else:
            self._writer.write(data)

    def __getattr__(self, name: str) -> Any:
        """Return the writer's attributes."""
        return getattr(self._writer, name)


class ProduceSchema(Schema):  # type: ignore[misc]  # the client has no types
    """The schema of a produce request from version 3 on. Only encoding differs from the client's."""

    def encode(self, item: Sequence[Any]) -> Pieces:
        """Encode a request.

        ``item``: transactional id, acks, timeout in milliseconds, and of each topic its name and ``(partition,
        records)`` pairs. Records are bytes, or a tuple of them.
        """
        transactional_id, acks, timeout_ms, topics = item
        pieces = [_TEXT.encode(transactional_id) + Int16.encode(acks) + Int32.encode(timeout_ms)]
        pieces.append(Int32.encode(len(topics)))
        for topic, parts in topics:
            pieces.append(_TEXT.encode(topic) + Int32.encode(len(parts)))
            for partition, records in parts:
                its = records if isinstance(records, tuple) else (records,)
                pieces += _PART.pack(partition, sum(map(len, its))), *its
        return Pieces(pieces)


def write_in_pieces() -> None:
    """Install the schema in all versions of the produce request that share it."""
    schema = ProduceSchema(*zip(_ORIGINAL.names, _ORIGINAL.fields, strict=True))
    for name in dir(produce):
        kind = getattr(produce, name)
        if name.startswith("ProduceRequest_v") and kind.SCHEMA is _ORIGINAL:
            kind.SCHEMA = schema
