"""HTTP and HTTPS requests with a limit of total time and size. Blocking: run it in a thread.

Tokens and client certificates may rotate.
"""

import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from pathlib import Path
from urllib.parse import urlsplit

from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.text import integer_of

TIMEOUT_S = 5.0
BYTES_MAX = 32 * 1024 * 1024
RETRY_S_MAX = 999_999


class HttpError(SlacktideError):
    """A server is unreachable, or its response is unusable."""


class UnreachedError(HttpError):
    """No connection was made: the server certainly did not receive the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete response."""

    status: int
    body: bytes
    retry_after_s: int | None = None
    """``Retry-After``, if the server gives it in seconds."""

    @property
    def words(self) -> str:
        """The beginning of the body, for a message."""
        text = self.body[:200].decode(errors="replace")
        return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def ask(
    connection: HTTPConnection, path: str, headers: Mapping[str, str], *, method: str = "GET", body: bytes | None = None
) -> Answer:
    """Send a request over a kept connection, or a new one if it was closed.

    If a kept connection fails, the request is sent again, so it must be idempotent.

    Raises:
        HttpError: no complete HTTP response within 5 s and 32 MiB.
        UnreachedError: no connection.
        OSError: the connection failed.
    """
    kept = connection.sock is not None
    with _deadline(connection) as passed:
        try:
            if not kept:
                _connect(connection)
            connection.request(method, path, body=body, headers=dict(headers))
            return _answer(connection)
        except (OSError, HTTPException) as exc:
            connection.close()
            if passed.is_set() or isinstance(exc, TimeoutError):
                raise HttpError(f"incomplete answer after {TIMEOUT_S:g} s") from exc
            if not kept and isinstance(exc, HTTPException):
                raise HttpError(f"incomplete, or not HTTP: {exc!r}") from exc
            if not kept:
                raise
    # A server may close a kept connection at any time.
    return ask(connection, path, headers, method=method, body=body)


def _connect(connection: HTTPConnection) -> None:
    try:
        connection.connect()
    except OSError as exc:
        if connection.sock is not None:
            raise  # connected, but TLS failed
        raise UnreachedError(f"no connection: {exc.strerror or exc}") from exc


def _answer(connection: HTTPConnection) -> Answer:
    response = connection.getresponse()
    body = response.read(BYTES_MAX + 1)
    if len(body) > BYTES_MAX:
        connection.close()
        raise HttpError(f"the answer is larger than {BYTES_MAX // 1024**2} MiB")
    if response.length:  # with a size limit, a truncated body is not detected otherwise
        raise IncompleteRead(body, response.length)
    after_s = None
    with suppress(TextError):  # absent, or a date
        after_s = integer_of(response.headers.get("Retry-After", ""), where="Retry-After", least=0, most=RETRY_S_MAX)
    return Answer(status=response.status, body=body, retry_after_s=after_s)


@contextmanager
def _deadline(connection: HTTPConnection) -> Iterator[threading.Event]:
    """End a request after a total time, and set the event. A socket timeout restarts with each byte received."""
    passed = threading.Event()

    def cut() -> None:
        passed.set()
        sock = connection.sock
        if sock is not None:
            with suppress(OSError):
                # Below TLS, to wake a blocked read.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(TIMEOUT_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield passed
    finally:
        timer.cancel()


LINE_MAX = 4 * 1024 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]+")
_BARE = re.compile(r"^(https://)([0-9a-fA-F.]*:[0-9a-fA-F:.]*:[0-9a-fA-F.]*)(:\d+)$")
"""An IPv6 address without brackets before a port: ``https://$(NODE_IP):10250`` in a manifest."""


class CredentialsError(UnreachedError):
    """A token or certificate is unusable or refused. The server did not receive the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address and credentials of a server. Files are read for each connection, the token for each request."""

    url: str
    """Such as ``https://127.0.0.1:10250``."""
    token: Path | None = None
    ca: Path | None = None
    """CA file; None: the machine's CAs."""
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False
    """Do not verify the server's certificate."""


class Https:
    """Client of one server, over a kept connection.

    ``port`` is the default port. Messages about an untrusted certificate end with ``untrusted``.

    Raises:
        ValueError: the address is not ``https://HOST`` or ``https://HOST:PORT``.
    """

    def __init__(self, access: Access, *, port: int, untrusted: str) -> None:
        parts = urlsplit(_BARE.sub(r"\1[\2]\3", access.url))
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(access.url)
        self._access, self._untrusted = access, untrusted
        self._host, self._port = parts.hostname, parts.port or port
        self._connection: HTTPSConnection | None = None

    def ask(self, path: str, *, method: str = "GET", body: bytes | None = None) -> Answer:
        """Send a request with JSON. It may be sent twice, so it must be idempotent.

        Raises:
            HttpError: no complete response; the server may have received the request.
            UnreachedError: no connection; the server did not receive it.
            CredentialsError: an unreadable file or untrusted certificate; the server did not receive it.
        """
        try:
            headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
            if self._access.token is not None:
                headers["Authorization"] = f"Bearer {token_of(self._access.token)}"
            if self._connection is None:
                context = _trust(self._access)
                self._connection = HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
            return ask(self._connection, path, headers, method=method, body=body)
        except UnreachedError:
            self.close()
            raise
        except (HttpError, OSError) as exc:
            self.close()
            if isinstance(exc, ssl.SSLCertVerificationError):
                why = f"its certificate could not be verified: {exc.verify_message}; {self._untrusted}"
                raise CredentialsError(why) from exc
            raise HttpError(_why(exc)) from exc

    def watch(self, path: str, *, accept: str, silence_s: float) -> Iterator[bytes]:
        """Stream the lines of a response over its own connection, until the server ends it.

        Raises:
            HttpError: the server is unreachable, refuses, is silent for ``silence_s``, or sends a line over 4 MiB.
        """
        headers = {"Accept": accept}
        if self._access.token is not None:
            headers["Authorization"] = f"Bearer {token_of(self._access.token)}"
        connection = HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=_trust(self._access))
        try:
            connection.connect()
            kept = connection.sock
            # Detect within 20 s that a peer is gone, although it may be silent for minutes.
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
                kept.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise HttpError(f"{response.status} {Answer(status=response.status, body=response.read(200)).words}")
            kept.settimeout(silence_s)
            while line := response.readline(LINE_MAX):
                if not line.endswith(b"\n"):
                    raise HttpError("a line of the answer is truncated, or larger than 4 MiB")
                yield line
        except (OSError, HTTPException, ValueError) as exc:
            raise HttpError(_why(exc)) from exc
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection. The next request reads the files again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def token_of(file: Path) -> str:
    """Return the token in a file. Raises CredentialsError if there is none."""
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CredentialsError(f"the token {file} cannot be read: {_why(exc)}") from exc
    if not _TOKEN.fullmatch(text):
        raise CredentialsError(f"{file} contains no token; accepted: one line of text")
    return text


def _trust(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca)
        if access.cert is not None:
            context.load_cert_chain(access.cert, access.key)
    except OSError as exc:
        files = ", ".join(str(file) for file in (access.ca, access.cert, access.key) if file is not None)
        raise CredentialsError(f"{files}: {_why(exc)}; accepted: PEM") from exc
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(exc: Exception) -> str:
    return exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc)
