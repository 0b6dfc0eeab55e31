"""Requests to one API server, and watches that continue across errors."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Self, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.config import ConfigException

from slacktide.agents.kubernetes.access import Access
from slacktide.agents.kubernetes.resource import (
    ApiAwayError,
    ApiError,
    ApiRefusedError,
    Event,
    Resource,
    lines,
    read_line,
    refused,
)
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.errors import ConfigError, Finding, TextError
from slacktide.schemas.text import answer_of

T = TypeVar("T")
REQUEST_S = 15.0
AUTHORISED_S = 1.0
"""Time after its header within which a request is authorised, unless the server is overloaded."""
PAGE = 500
WATCH_S = 300
SILENCE_S = 60.0
"""A watch without any event is restarted after this time, since its connection may be dead."""
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[T]):
    """A list of objects at one resource version."""

    items: list[T]
    resource_version: str
    """Where a watch continues."""


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    more: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    metadata: _Metadata
    items: list[T] | None = None


class ApiServer:
    """Client of one API server, as a context manager. Objects are decoded as ``kind``: ``dict`` or a msgspec struct.

    All methods except ``watch`` have a timeout of 15 s. All raise:
        ApiAwayError: the server cannot be reached, broke the connection, or sent another object.
        ApiRefusedError: the server responded with an error.
    ``name`` is the user agent and field manager.
    """

    def __init__(self, access: Access, *, name: str) -> None:
        self.access = access
        self._name = name
        self._client: ApiClient | None = None

    async def __aenter__(self) -> Self:
        """Read the certificates. Raises ConfigError if a certificate is invalid."""
        configuration = self.access.configuration
        try:
            self._client = ApiClient(configuration)
        except (ssl.SSLError, OSError) as exc:
            files = [configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file]
            place = ", ".join(str(file) for file in files if file)
            raise ConfigError([Finding(file=place, field="the file", value=str(exc), accepted="PEM text")]) from exc
        self._client.user_agent = self._name
        # Otherwise each request uses threads to read proxies from the environment and ~/.netrc.
        rest, at = self._client.rest_client, urlsplit(configuration.host or "")
        if not rest.proxy:  # ``HTTPS_PROXY``, unless ``NO_PROXY`` has the server's host
            rest.proxy = "" if proxy_bypass(at.hostname or "") else getproxies().get(at.scheme, "")
        rest.pool_manager._trust_env = False  # noqa: SLF001 - its maker has no setting for it
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None, "entered before"
        await self._client.close()

    async def text(self, path: str) -> str:
        """GET a path as text, such as ``/readyz`` or ``/version``."""
        return (await self._asked("GET", path)).decode(errors="replace")

    async def read(self, path: str, kind: type[T]) -> T:
        """GET a path that is no object's."""
        return _read(await self._asked("GET", path), kind)

    async def get(self, resource: Resource, name: str, kind: type[T], *, namespace: str = "", sub: str = "") -> T:
        """GET one object."""
        return _read(await self._asked("GET", resource.path(namespace=namespace, name=name, sub=sub)), kind)

    async def list(
        self,
        resource: Resource,
        kind: type[T],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        each: Callable[[T], T] = lambda one: one,
    ) -> Listed[T]:
        """List all objects, page by page. ``fields`` and ``labels`` are selectors, such as ``metadata.name=x``.

        ``each`` is called with each object before the next page is read.
        """
        items: list[T] = []
        query = {"limit": str(PAGE), "fieldSelector": fields, "labelSelector": labels, "continue": ""}
        while True:
            body = await self._asked("GET", resource.path(namespace=namespace), query=query)
            page = _read(body, _Page[kind])  # type: ignore[valid-type]
            items += map(each, page.items or [])
            if not page.metadata.more:
                return Listed(items=items, resource_version=page.metadata.resource_version)
            query["continue"] = page.metadata.more

    async def watch(
        self,
        resource: Resource,
        kind: type[T],
        *,
        resource_version: str,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
    ) -> AsyncGenerator[Event[T], None]:
        """Watch events after ``resource_version``, bookmarks included. The watch ends by itself, or after silence.

        The first event is a bookmark of that version: the server has accepted the watch. Continue from the last
        event's resource version. Close it (``contextlib.aclosing``) if you stop before its end.
        ApiRefusedError with status 410 means that the version is too old: list again.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_S),
            "fieldSelector": fields,
            "labelSelector": labels,
        }
        path = resource.path(namespace=namespace)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=SILENCE_S)
        async with self._answered("GET", path, query=query, patience=patience) as answer:
            yield Event(type="BOOKMARK", object=None, resource_version=resource_version)
            try:
                async for line in lines(answer.content.iter_any()):
                    yield read_line(line, f"WATCH {self._where(path)}", kind)
            except TimeoutError:
                return
            except ValueError as exc:
                raise ApiAwayError(f"WATCH {self._where(path)}: {exc}") from exc

    async def create(
        self,
        resource: Resource,
        body: object,
        kind: type[T],
        *,
        namespace: str = "",
        name: str = "",
        sub: str = "",
        dry_run: bool = False,
    ) -> T:
        """Create an object; with ``name`` and ``sub``, post to a subresource such as ``eviction``.

        With ``dry_run`` the server runs admission and stores nothing.
        """
        path, query = resource.path(namespace=namespace, name=name, sub=sub), {"dryRun": "All" if dry_run else ""}
        return _read(await self._asked("POST", path, query=query, body=body, content_type=JSON), kind)

    async def replace(
        self, resource: Resource, name: str, body: object, kind: type[T], *, namespace: str = "", sub: str = ""
    ) -> T:
        """Replace (PUT) an object; 409 if its resource version is outdated."""
        path = resource.path(namespace=namespace, name=name, sub=sub)
        return _read(await self._asked("PUT", path, body=body, content_type=JSON), kind)

    async def patch(
        self, resource: Resource, name: str, body: object, kind: type[T], *,
        namespace: str = "", sub: str = "", how: str = MERGE_PATCH,
    ) -> T:  # fmt: skip
        """Merge-patch an object or a subresource such as ``status``; null removes a field."""
        path = resource.path(namespace=namespace, name=name, sub=sub)
        return _read(await self._asked("PATCH", path, body=body, content_type=how), kind)

    async def patch_together(self, paths: Collection[str], body: Mapping[str, object]) -> dict[str, ApiError]:
        """Strategic-merge-patch objects, of which each change may revoke the right to make the others.

        The server authorises a request by its header. So all headers are sent first, and the bodies a second later; if
        one fails before, none. Others may write meanwhile, so no body has a resource version. Returns errors by path.
        """
        assert self._client is not None, "async with ApiServer(...)"
        rest, authorised = self._client.rest_client, asyncio.Barrier(len(paths))
        headers = {"Accept": JSON, "Content-Type": STRATEGIC_PATCH, "User-Agent": self._name}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"])

        async def send(path: str) -> ApiError | None:
            url = self._where(path)
            try:
                async with rest.pool_manager.patch(
                    url,
                    params={"fieldManager": self._name},
                    data=_late(body, authorised),
                    headers=headers,
                    proxy=rest.proxy,
                    timeout=aiohttp.ClientTimeout(total=REQUEST_S),
                    server_hostname=rest.server_hostname,
                ) as answer:
                    if answer.status < 300:
                        return None
                    error: ApiError = refused(f"PATCH {url}", answer.status, await answer.read())
            except (aiohttp.ClientError, OSError) as exc:
                error = ApiAwayError(f"PATCH {url}: {str(exc) or type(exc).__name__}")
            await authorised.abort()
            return error

        errors = await asyncio.gather(*map(send, paths))
        return {path: error for path, error in zip(paths, errors, strict=True) if error is not None}

    async def delete(self, resource: Resource, name: str, *, namespace: str = "", body: object = None) -> None:
        """Delete an object. ``body``: DeleteOptions; 409 if its preconditions do not hold."""
        path = resource.path(namespace=namespace, name=name)
        await self._asked("DELETE", path, body=body, content_type="" if body is None else JSON)

    async def _asked(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "",
    ) -> bytes:
        changes = {"fieldManager": self._name} if method in {"POST", "PUT", "PATCH"} else {}
        patience = aiohttp.ClientTimeout(total=REQUEST_S)
        async with self._answered(
            method, path, query={**(query or {}), **changes}, body=body, content_type=content_type, patience=patience
        ) as answer:
            return await answer.read()

    @asynccontextmanager
    async def _answered(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        patience: aiohttp.ClientTimeout,
        body: object = None,
        content_type: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._client is not None, "async with ApiServer(...)"
        where = f"{method} {self._where(path)}"
        try:
            async with asyncio.timeout(REQUEST_S):
                answer: aiohttp.ClientResponse = await self._client.call_api(
                    path,
                    method,
                    query_params=[(key, value) for key, value in query.items() if value],
                    header_params={"Accept": JSON} | ({"Content-Type": content_type} if content_type else {}),
                    body=msgspec.to_builtins(body),
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=patience,
                )
            async with answer:
                try:
                    if answer.status >= 300:
                        raise refused(where, answer.status, await answer.read(), answer.headers.get("Retry-After"))
                    yield answer
                finally:
                    # Of an unfinished response, such as a watch, without waiting for the TLS shutdown.
                    if answer.connection is not None and answer.connection.transport is not None:
                        answer.connection.transport.abort()
        except TimeoutError as exc:
            raise ApiAwayError(
                f"{where}: no answer in time; check that the API server runs and can be reached from here"
            ) from exc
        except (aiohttp.ClientError, OSError, ConfigException) as exc:
            raise ApiAwayError(f"{where}: {str(exc) or type(exc).__name__}") from exc

    def _where(self, path: str) -> str:
        return f"{self.access.configuration.host}{path}"


async def _late(body: Mapping[str, object], authorised: asyncio.Barrier) -> AsyncIterator[bytes]:
    """Yield a JSON body whose first byte, a space, is sent with the header. The rest follows later than all headers."""
    yield b" "
    await authorised.wait()
    await asyncio.sleep(AUTHORISED_S)
    yield msgspec.json.encode(body)


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return cast("T", answer_of(body, kind, where="the answer"))
    except TextError as exc:
        raise ApiAwayError(f"the answer is not a valid object: {exc.why}") from exc


PAUSE_S = 1.0
PAUSE_MAX_S = 10.0
GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Generic[T]):
    """The complete list. Known objects that are not in it are gone."""

    items: list[T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[T]):
    """One object was added or changed."""

    object: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """One object was deleted."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The API server cannot be read. Earlier updates may be stale."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The API server can be read again. All changes made meanwhile follow."""


Update = Whole[T] | Changed[T] | Gone | Trouble | Over


async def follow(
    api: ApiServer, resource: Resource, kind: type[T], *, namespace: str = "", fields: str = "", labels: str = "",
    each: Callable[[T], T] = lambda one: one,
) -> AsyncGenerator[Update[T], None]:  # fmt: skip
    """List the objects, then follow their changes. ``each`` is called with each object that is listed.

    A watch that ends continues at its last version. Only if that is too old (410), everything is listed again.
    Errors are yielded and retried with back-off (up to 1 s, doubling up to 10 s). Close it when you stop.
    """
    version, troubled, backoff = "", False, Backoff(PAUSE_S, PAUSE_MAX_S)
    while True:
        try:
            if not version:
                listed = await api.list(resource, kind, namespace=namespace, fields=fields, labels=labels, each=each)
                yield Whole(items=listed.items)
                version = listed.resource_version
            watching = api.watch(
                resource, kind, resource_version=version, namespace=namespace, fields=fields, labels=labels
            )
            async with aclosing(watching) as events:
                async for event in events:
                    if troubled:
                        yield Over()
                    version, troubled = event.resource_version, False
                    backoff.reset()
                    if event.type == "DELETED":
                        yield Gone(name=event.name, namespace=event.namespace)
                    elif event.object is not None:
                        yield Changed(object=event.object)
            await asyncio.sleep(PAUSE_S)  # limits the rate if the server ends watches often
        except ApiError as exc:
            if isinstance(exc, ApiRefusedError) and exc.status == GONE:
                version = ""
            else:
                troubled = True
                yield Trouble(why=str(exc))
            await asyncio.sleep(backoff.next_s())
