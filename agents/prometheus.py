"""Queries a Prometheus server, or one with its HTTP API, read-only."""

import base64
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from slacktide.agents.http import token_of
from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.text import answer_of

REFUSAL_BYTES_MAX = 65_536
SHOWN = 300
"""Characters of a server's text in a message."""
USER, PASSWORD = "SLACKTIDE_PROMETHEUS_USER", "SLACKTIDE_PROMETHEUS_PASSWORD"
"""Environment variables with a login."""
T = TypeVar("T")


class PrometheusError(SlacktideError):
    """Prometheus is unavailable, denies access, or is another server."""


class TooMuchError(PrometheusError):
    """The query exceeds the server's sample limit; a shorter span may pass."""


class Series(msgspec.Struct, frozen=True):
    """A time series: labels, and pairs of Unix seconds and text."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class Sample(msgspec.Struct, frozen=True):
    """A time series at one moment."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    """Unix seconds and text; None: a histogram."""


class _Data(msgspec.Struct, frozen=True):
    result: msgspec.Raw
    kind: str = msgspec.field(name="resultType", default="")


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one answer may take."""

    timeout_s: float
    """Without a byte."""
    bytes_max: int
    smaller: str
    """How to get a smaller answer, for messages."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, which could send the token to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow no redirect."""
        del req, fp, msg, headers
        raise PrometheusError(f"the server answered {code}, a redirect to {newurl}: give that address if you trust it")


class Prometheus:
    """One server. Blocking: run it in a thread.

    Args:
        url: its address.
        limits: of each answer.
        token_file: with a bearer token, read for each request.
        login: user and password, without a token file; None: unknown.
        ca: the CA certificates in PEM; None: the system's.

    Raises:
        PrometheusError: the address is not a URL, or the CA file is unreadable.
    """

    def __init__(
        self,
        url: str,
        limits: Limits,
        token_file: Path | None = None,
        login: tuple[str | None, str | None] = (None, None),
        ca: Path | None = None,
    ) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:  # such as of brackets without an IPv6 address, or a port above 65535
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise PrometheusError(
                f"{url.rpartition('@')[2]} is not a valid address; accepted: http://HOST:PORT or https://HOST:PORT, "
                "with an optional path"
            )
        self._url, self._limits, self._token_file, self._login = url, limits, token_file, login
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as exc:
            raise PrometheusError(f"{ca}: {exc.strerror or exc}; accepted: certificates in PEM") from exc
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())

    def range(self, query: str, start_s: int, end_s: int, step_s: int) -> list[Series]:
        """Return all series of a query at each step from start to end, both inclusive.

        Raises:
            TooMuchError: the query exceeds the server's sample limit.
            PrometheusError: no response, or not from Prometheus.
        """
        form = {"query": query, "start": start_s, "end": end_s, "step": step_s}
        return self._decoded(self._ask("query_range", form).result, list[Series])

    def instant(self, query: str) -> list[Sample]:
        """Return all series of a query now.

        Raises:
            PrometheusError: no response, not from Prometheus, or not a vector.
        """
        data = self._ask("query", {"query": query})
        if data.kind != "vector":
            raise PrometheusError(
                f"{self._url}: the query returns a {data.kind[:SHOWN]}; accepted: a vector, such as of "
                "histogram_quantile(...), without a range in [...] around it"
            )
        return self._decoded(data.result, list[Sample])

    def _ask(self, path: str, form: dict[str, object]) -> _Data:
        limits = self._limits
        # GET: read-only proxies, such as the API server's, deny POST.
        asked = urlencode(form | {"timeout": f"{limits.timeout_s:.0f}s"})
        address = f"{self._url.rstrip('/')}/api/v1/{path}?{asked}"
        request = urllib.request.Request(address, headers=self._headers())  # noqa: S310
        try:
            with self._opener.open(request, timeout=limits.timeout_s) as response:
                body: bytes = response.read(limits.bytes_max + 1)
        except urllib.error.HTTPError as exc:
            body = b""
            with suppress(OSError, HTTPException):
                body = exc.read(REFUSAL_BYTES_MAX)
            raise self._refused(exc.code, body) from exc
        except (OSError, HTTPException, UnicodeError) as exc:
            raise PrometheusError(
                f"{self._url} cannot be reached: {self._why(exc)}; check the address and that Prometheus runs"
            ) from exc
        if len(body) > limits.bytes_max:
            raise TooMuchError(f"an answer is longer than {limits.bytes_max >> 20} MiB; {limits.smaller}")
        answer = self._decoded(body, _Answer)
        if answer.status != "success" or answer.data is None:
            raise PrometheusError(f"{self._url} rejected a query: {answer.error[:SHOWN]}")
        return answer.data

    def _decoded(self, body: bytes | msgspec.Raw, kind: type[T]) -> T:
        try:
            found: T = answer_of(body, kind, where="its answer")
        except TextError as exc:
            raise PrometheusError(
                f"{self._url} did not answer like Prometheus ({exc}). Give the address without /api/v1"
            ) from exc
        return found

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "slacktide"}
        user, password = self._login
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {token_of(self._token_file)}"
        elif user is not None:
            pair = f"{user}:{password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers

    def _refused(self, code: int, body: bytes) -> PrometheusError:
        url = self._url
        if code in {401, 403}:
            return PrometheusError(
                f"{url} answered {code}: it requires a login that may query. Give --token-file FILE, or set "
                "SLACKTIDE_PROMETHEUS_USER and SLACKTIDE_PROMETHEUS_PASSWORD"
            )
        try:
            why = answer_of(body, _Answer, where="its answer").error
        except TextError:
            text = body[:80].decode(errors="replace").strip()
            return PrometheusError(
                f"{url} answered {code}: it is not Prometheus, or its API has another path. Give the address "
                f"without /api/v1: {text}"
            )
        if "too many samples" in why or "maximum resolution" in why:
            return TooMuchError(f"{url}: {why[:SHOWN]}; {self._limits.smaller}")
        return PrometheusError(f"{url} rejected a query ({code}): {why[:SHOWN]}")

    def _why(self, exc: Exception) -> str:
        reason = getattr(exc, "reason", exc)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return (
                f"its certificate could not be verified: {reason.verify_message}; give the CA that signed it with "
                "--ca FILE"
            )
        if isinstance(reason, TimeoutError):
            return f"no answer within {self._limits.timeout_s:.0f} s; {self._limits.smaller}"
        return str(getattr(reason, "strerror", None) or reason or exc)
