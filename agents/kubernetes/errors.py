"""Errors of requests to the API server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slacktide.schemas.errors import SlacktideError


class ApiError(SlacktideError):
    """Base class: a request to the API server failed."""


class ApiAwayError(ApiError):
    """The API server could not be reached, or broke the connection. The request may have been processed."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One of a Status' causes."""

    reason: str = ""
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    causes: list[Cause] | None = None
    retry_after_s: int = msgspec.field(name="retryAfterSeconds", default=0)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Status that are read."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ApiRefusedError(ApiError):
    """The API server responded with an error.

    ``reason`` is of the Status, such as ``NotFound``, ``Conflict`` or ``Expired``. ``message`` is of the Status, or the
    beginning of the body. ``retry_after_s`` is 0 if absent.
    """

    def __init__(
        self,
        where: str,
        *,
        status: int,
        reason: str = "",
        message: str = "",
        causes: Sequence[Cause] = (),
        retry_after_s: int = 0,
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        hint = _HINTS.get(status, "")
        super().__init__(f"{where}: {status} {reason}".rstrip() + (f": {message}" if message else "") + hint)


_HINTS = {
    401: "; check whether the token or certificate is still valid",
    403: "; the account's role does not allow it: kubectl auth can-i --list --as SUBJECT",
    404: "; if it is a kind: check that its CustomResourceDefinition is applied",
}


def refused(where: str, http_status: int, body: bytes, retry_after: str | None = None) -> ApiRefusedError:
    """Return the error for a response other than 2xx. ``body`` may be a Status object as JSON, or anything."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body[:200].decode(errors="replace").split())
        status = Status(message=text)
    details = status.details or _Details()
    header_s = int(retry_after) if retry_after and retry_after.isdigit() else 0
    return ApiRefusedError(
        where,
        status=http_status,
        reason=status.reason,
        message=status.message,
        causes=details.causes or (),
        retry_after_s=details.retry_after_s or header_s,
    )
