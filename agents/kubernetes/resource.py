"""Kinds of objects with their API paths, errors of requests, and the lines of a watch."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.text import answer_of, integer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of objects."""

    group: str = ""
    """"": the core group."""
    version: str = "v1"
    plural: str

    @property
    def api_version(self) -> str:
        """As in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, *, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path of one object or a collection; without namespace: of all namespaces."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, sub) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NODES = Resource(plural="nodes")
NAMESPACES = Resource(plural="namespaces")
PODS = Resource(plural="pods")
CONFIGMAPS = Resource(plural="configmaps")
RESOURCE_QUOTAS = Resource(plural="resourcequotas")
LIMIT_RANGES = Resource(plural="limitranges")
DEPLOYMENTS = Resource(group="apps", plural="deployments")
CRDS = Resource(group="apiextensions.k8s.io", plural="customresourcedefinitions")
MUTATING_WEBHOOKS = Resource(group="admissionregistration.k8s.io", plural="mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = Resource(group="admissionregistration.k8s.io", plural="validatingwebhookconfigurations")
SECRETS = Resource(plural="secrets")
SERVICE_ACCOUNTS = Resource(plural="serviceaccounts")
JOBS = Resource(group="batch", plural="jobs")
EVENTS = Resource(plural="events")
CLUSTER_ROLES = Resource(group="rbac.authorization.k8s.io", plural="clusterroles")
CLUSTER_ROLE_BINDINGS = Resource(group="rbac.authorization.k8s.io", plural="clusterrolebindings")
LEASES = Resource(group="coordination.k8s.io", plural="leases")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", plural="priorityclasses")
NODE_METRICS = Resource(group="slo.koordinator.sh", version="v1alpha1", plural="nodemetrics")
NODE_RESOURCE_TOPOLOGIES = Resource(group="topology.node.k8s.io", version="v1alpha2", plural="noderesourcetopologies")
PROFILES = Resource(group="config.koordinator.sh", version="v1alpha1", plural="clustercolocationprofiles")
RESERVATIONS = Resource(group="scheduling.koordinator.sh", version="v1alpha1", plural="reservations")
TOKEN_REVIEWS = Resource(group="authentication.k8s.io", plural="tokenreviews")


UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409


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


class IgnoreStatus:
    """Ignores refusals with these statuses, as a context manager. What follows the ``with`` block goes on."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = statuses

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _: object, exc: BaseException | None, __: object) -> bool:
        return isinstance(exc, ApiRefusedError) and exc.status in self._statuses


_HINTS = {
    401: "; check whether the token or certificate is still valid",
    403: "; the account's role does not allow it: kubectl auth can-i --list --as SUBJECT",
    404: "; if it is a kind: check that its CustomResourceDefinition is applied",
}


def refused(where: str, http_status: int, body: bytes, retry_after: str | None = None) -> ApiRefusedError:
    """Return the error for a response other than 2xx. ``body`` may be a Status object as JSON, or anything."""
    try:
        status: Status = answer_of(body, Status, where=where)
    except TextError:
        text = " ".join(body[:200].decode(errors="replace").split())
        status = Status(message=text)
    details, header_s = status.details or _Details(), 0
    with suppress(TextError):  # absent, or a date
        header_s = integer_of(retry_after or "", where="Retry-After", least=0, most=RETRY_S_MAX)
    return ApiRefusedError(
        where,
        status=http_status,
        reason=status.reason,
        message=status.message,
        causes=details.causes or (),
        retry_after_s=details.retry_after_s or header_s,
    )


T = TypeVar("T")
RETRY_S_MAX = 3600
LINE_BYTES_MAX = 16 * 1024 * 1024
"""Objects have at most 1.5 MiB in etcd, and more in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[T]):
    """A change of one object. A bookmark has no object, only the resource version reached."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str
    name: str = ""
    namespace: str = ""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Head = _Head()


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


def read_line(text: bytes, where: str, kind: type[T]) -> Event[T]:
    """Decode one line.

    Raises:
        ApiRefusedError: the server ends the watch; status 410 if the resource version is too old.
        TextError: malformed.
    """
    line: _Line = answer_of(text, _Line, where=where)
    if line.type == "ERROR":
        status: Status = answer_of(line.object, Status, where=where)
        raise refused(where, status.code, bytes(line.object))
    head: _Object = answer_of(line.object, _Object, where=where)
    metadata = head.metadata
    return Event(
        type=line.type,
        object=None if line.type == "BOOKMARK" else answer_of(line.object, kind, where=where),
        resource_version=metadata.resource_version,
        name=metadata.name,
        namespace=metadata.namespace,
    )


async def lines(chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Split a body into lines. An incomplete last line is dropped. Raises ValueError for a line longer than 16 MiB."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        *whole, tail = rest.split(b"\n")
        rest = bytearray(tail)
        for line in whole:
            yield bytes(line)
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError("a line of a watch is larger than 16 MiB")
