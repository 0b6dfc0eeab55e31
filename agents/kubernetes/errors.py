"""What an API server may answer instead of what was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slacktide.schemas.errors import SlacktideError


class ApiError(SlacktideError):
    """The root: the API server did not do what was asked."""


class ApiAwayError(ApiError):
    """It could not be reached, or broke off. What was asked may have been done all the same."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One of a Status' causes."""

    reason: str = ""
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    causes: list[Cause] | None = None
    retry_after_s: int = msgspec.field(name="retryAfterSeconds", default=0)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What of the kind Status is read."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ApiRefusedError(ApiError):
    """It answered with an error.

    Attributes:
        status: of HTTP.
        reason: of the Status object, such as ``NotFound``, ``Conflict`` or ``Expired``; "" where it sent none.
        message: of the Status, or the beginning of the body.
        causes: the Status' causes.
        retry_after_s: how long it asks to wait; 0: it does not ask.

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
    401: "; is the token or certificate still good?",
    403: "; the role of this account lacks it: kubectl auth can-i --list --as SUBJECT",
    404: "; if it is a kind: is its CustomResourceDefinition applied?",
}


def refused(where: str, http_status: int, body: bytes, retry_after: str | None = None) -> ApiRefusedError:
    """The reason of an answer other than 2xx.

    Args:
        where: verb and URL, for the message.
        http_status: of the answer.
        body: a Status object as JSON, or anything.
        retry_after: the header ``Retry-After``.

    """
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
