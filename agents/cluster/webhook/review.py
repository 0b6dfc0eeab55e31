"""AdmissionReview requests and responses, and JSON patches (RFC 6902). Pure.

Source: kubernetes v1.34, staging/src/k8s.io/api/admission/v1/types.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.text import answer_of, excess_of

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"


CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
CONTAINERS_MAX = 200
HEAD_BYTES = 1_000
_HEAD = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,128})"')
"""The API server writes the uid first."""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """The requesting user."""

    username: str = ""
    extra: dict[str, list[str]] | None = None
    """Claims of a token: its pod and node."""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """The request."""

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    user_info: UserInfo = UserInfo()
    object: dict[str, Any] | None = None
    excess: str = ""
    """Why the object was not read: it is beyond reason; "": it was."""


class _Asked(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    request: Request | None = None


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request is denied, for the requester."""

    code: int
    reason: str
    message: str


class _Response(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    uid: str
    allowed: bool
    status: Status | None = None
    patch_type: str | None = None
    patch: bytes | None = None
    warnings: Sequence[str] = ()


class _Answered(msgspec.Struct, frozen=True, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = KIND


_encoder = msgspec.json.Encoder()


def asked(raw: bytes) -> Request:
    """Parse a request; of one with an object beyond reason only the uid, which a refusal needs.

    Raises:
        BadMessageError: it is no AdmissionReview v1 with a request.
    """
    if (excess := excess_of(raw)) and (head := _HEAD.search(raw, 0, HEAD_BYTES)) is not None:
        return Request(uid=head[1].decode(), excess=excess)
    try:
        review: _Asked = answer_of(raw, _Asked, where="the request")
    except TextError as exc:
        raise BadMessageError(KIND, exc.why) from exc
    if review.api_version != API_VERSION or review.request is None:
        raise BadMessageError(KIND, f"apiVersion {review.api_version!r}; accepted: {API_VERSION} with a request")
    return review.request


def excess_containers(request: Request) -> str:
    """Return how many containers a pod has, if nobody has the time to read them all at once; "": it is fine."""
    spec = (request.object or {}).get("spec")
    kinds = [spec.get(kind) for kind in CONTAINERS] if isinstance(spec, dict) else []
    containers = sum(len(one) for one in kinds if isinstance(one, list))
    return f"{containers} containers; accepted: at most {CONTAINERS_MAX}" if containers > CONTAINERS_MAX else ""


def allowed(request: Request, patch: Sequence[dict[str, Any]] = (), warnings: Sequence[str] = ()) -> bytes:
    """Allow the request, optionally with a JSON patch, and with warnings that clients such as kubectl print."""
    if not patch:
        return _encoder.encode(_Answered(response=_Response(uid=request.uid, allowed=True, warnings=warnings)))
    encoded = _encoder.encode(patch)
    response = _Response(uid=request.uid, allowed=True, patch_type="JSONPatch", patch=encoded, warnings=warnings)
    return _encoder.encode(_Answered(response=response))


def refused(request: Request, status: Status) -> bytes:
    """Deny the request."""
    return _encoder.encode(_Answered(response=_Response(uid=request.uid, allowed=False, status=status)))


Operation = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    """Operations that turn ``before`` into ``after``; empty if they are equal."""
    return list(_operations(before, after, ""))


def _operations(before: Any, after: Any, path: str) -> Iterator[Operation]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        yield from _of_lists(before, after, path)
    # In Python True equals 1; in JSON it does not.
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield {"op": "replace", "path": path, "value": after}


def _of_objects(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Operation]:
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    for name, value in after.items():
        where = f"{path}/{_escaped(name)}"
        if name in before:
            yield from _operations(before[name], value, where)
        else:
            yield {"op": "add", "path": where, "value": value}


def _of_lists(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[Operation]:
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        yield from _operations(one, other, f"{path}/{index}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
