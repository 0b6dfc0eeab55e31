"""A collection followed for ever: whole at first, then each change, across every trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.errors import ApiError, ApiRefusedError
from slacktide.agents.kubernetes.resource import Resource
from slacktide.agents.kubernetes.watch import Event
from slacktide.schemas.backoff import Backoff

T = TypeVar("T")
PAUSE_S = 1.0
PAUSE_MAX_S = 10.0
GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Generic[T]):
    """All there is: what was known before and is not among it is gone."""

    items: list[T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[T]):
    """One object is new, or other than it was."""

    object: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """One object was deleted."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Nothing can be read for the time being; earlier updates may be out of date."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The trouble is over: all that happened meanwhile follows."""


Update = Whole[T] | Changed[T] | Gone | Trouble | Over


async def follow(
    api: ApiServer, resource: Resource, kind: type[T], *, namespace: str = "", fields: str = "", labels: str = ""
) -> AsyncGenerator[Update[T], None]:
    """List the objects, then follow their changes.

    A watch that ends goes on from where it was; only where that is too old (410) is all listed anew.
    Trouble is yielded, waited out (up to 1 s, doubling up to 10 s) and tried again. Close it when you stop.
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
            await asyncio.sleep(PAUSE_S)  # however often a server ends its watches
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
