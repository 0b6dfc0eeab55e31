"""Lists and watches a collection for ever, across errors (like an informer)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import ApiError, ApiRefusedError, Event, Resource
from slacktide.schemas.backoff import Backoff

T = TypeVar("T")
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
    api: ApiServer, resource: Resource, kind: type[T], *, namespace: str = "", fields: str = "", labels: str = ""
) -> AsyncGenerator[Update[T], None]:
    """List the objects, then follow their changes.

    A watch that ends continues at its last version. Only if that is too old (410), everything is listed again.
    Errors are yielded and retried with back-off (up to 1 s, doubling up to 10 s). Close it when you stop.
    """
    version, troubled, backoff = "", False, Backoff(PAUSE_S, PAUSE_MAX_S)
    while True:
        try:
            if not version:
                listed = await api.list(resource, kind, namespace=namespace, fields=fields, labels=labels)
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
                    if (update := _update_of(event)) is not None:
                        yield update
            await asyncio.sleep(PAUSE_S)  # limits the rate if the server ends watches often
        except ApiError as exc:
            if isinstance(exc, ApiRefusedError) and exc.status == GONE:
                version = ""
            else:
                troubled = True
                yield Trouble(why=str(exc))
            await asyncio.sleep(backoff.next_s())


def _update_of(event: Event[T]) -> Changed[T] | Gone | None:
    if event.type == "DELETED":
        return Gone(name=event.name, namespace=event.namespace)
    return None if event.object is None else Changed(object=event.object)
