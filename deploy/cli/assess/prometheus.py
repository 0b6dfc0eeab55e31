"""A read-only client for Prometheus range queries over HTTP."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.parse import urlencode, urlsplit

import msgspec

from slacktide.agents.http import token_of
from slacktide.schemas.errors import SlacktideError

TIMEOUT_S = 120.0
BYTES_MAX = 512 * 1024 * 1024
SHOWN = 300
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoding of malformed JSON raises."""


class PrometheusError(SlacktideError):
    """Prometheus is unavailable, denies access, or is another server."""


class TooMuchError(PrometheusError):
    """The query exceeds the server's sample limit; a shorter span may pass."""


class Series(msgspec.Struct, frozen=True):
    """A time series: labels, and pairs of Unix seconds and text."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, frozen=True):
    result: list[Series]


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Address and login."""

    url: str
    token_file: Path | None = None
    user: str | None = None
    password: str | None = None
    ca: Path | None = None
    """None: the system's CAs."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, which could send the token to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow no redirect."""
        del req, fp, msg, headers
        raise PrometheusError(f"the server answered {code}, a redirect to {newurl}: give that address if you trust it")


class Prometheus:
    """One server.

    Raises:
        PrometheusError: the address is not a URL, or the CA file is unreadable.
    """

    def __init__(self, server: Server) -> None:
        if not _is_address(server.url):
            without_login = server.url.rpartition("@")[2]
            raise PrometheusError(
                f"{without_login} is not a valid address; accepted: http://HOST:PORT or https://HOST:PORT, "
                "with an optional path"
            )
        self._server = server
        self._api = server.url.rstrip("/") + "/api/v1/query_range"
        try:
            context = ssl.create_default_context(cafile=server.ca)
        except OSError as exc:
            raise PrometheusError(f"{server.ca}: {exc.strerror or exc}; accepted: certificates in PEM") from exc
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())

    def range(self, query: str, start_s: int, end_s: int, step_s: int) -> list[Series]:
        """Return all series of a query at each step from start to end, both inclusive.

        Raises:
            TooMuchError: the query exceeds the server's sample limit.
            PrometheusError: no response, or not from Prometheus.
        """
        form = {"query": query, "start": start_s, "end": end_s, "step": step_s, "timeout": f"{TIMEOUT_S:.0f}s"}
        # GET: read-only proxies, such as the API server's, deny POST.
        request = urllib.request.Request(f"{self._api}?{urlencode(form)}", headers=self._headers())  # noqa: S310
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                body = _read(response)
        except urllib.error.HTTPError as exc:
            raise self._refused(exc.code, exc.read(65_536)) from exc
        except (OSError, HTTPException, UnicodeError) as exc:
            raise PrometheusError(
                f"{self._server.url} cannot be reached: {_why(exc)}; check the address and that Prometheus runs"
            ) from exc
        return self._series(body)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "slacktide-assess"}
        if self._server.token_file is not None:
            headers["Authorization"] = f"Bearer {token_of(self._server.token_file)}"
        elif self._server.user is not None:
            pair = f"{self._server.user}:{self._server.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers

    def _refused(self, code: int, body: bytes) -> PrometheusError:
        url = self._server.url
        if code in {401, 403}:
            return PrometheusError(
                f"{url} answered {code}: it requires a login that may query. Give --token-file FILE, or set "
                "SLACKTIDE_PROMETHEUS_USER and SLACKTIDE_PROMETHEUS_PASSWORD"
            )
        try:
            why = msgspec.json.decode(body, type=_Answer).error
        except MALFORMED:
            text = body[:80].decode(errors="replace").strip()
            return PrometheusError(
                f"{url} answered {code}: it is not Prometheus, or its API has another path. Give the address "
                f"without /api/v1: {text}"
            )
        if "too many samples" in why or "maximum resolution" in why:
            return TooMuchError(f"{url}: {why}; a longer --step reads fewer samples")
        return PrometheusError(f"{url} rejected a query ({code}): {why[:SHOWN]}")

    def _series(self, body: bytes) -> list[Series]:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except MALFORMED as exc:
            raise PrometheusError(
                f"{self._server.url} did not answer like Prometheus ({exc}). Give the address without /api/v1"
            ) from exc
        if answer.status != "success" or answer.data is None:
            raise PrometheusError(f"{self._server.url} rejected a query: {answer.error[:SHOWN]}")
        return answer.data.result


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # such as of brackets without an IPv6 address
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not (parts.username or parts.query)


def _read(response: HTTPResponse) -> bytes:
    body = response.read(BYTES_MAX + 1)
    if len(body) > BYTES_MAX:
        raise TooMuchError(f"an answer is longer than {BYTES_MAX >> 20} MiB; a longer --step reads fewer samples")
    return body


def _why(exc: Exception) -> str:
    reason = getattr(exc, "reason", exc)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"its certificate could not be verified: {reason.verify_message}; give the CA that signed it with --ca FILE"
        )
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s; a longer --step reads fewer samples"
    return str(getattr(reason, "strerror", None) or reason or exc)
