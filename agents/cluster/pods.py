"""Follows all pods of the cluster, for one listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from slacktide.agents.kubernetes.api_server import ApiServer, Changed, Gone, Over, Trouble, Whole, follow
from slacktide.agents.kubernetes.resource import PODS
from slacktide.schemas.errors import BadMessageError

log = logging.getLogger(__name__)

YIELD_EVERY = 100
O = TypeVar("O")  # noqa: E741 - an object of the API server
P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


class PodListener(Protocol[P_contra]):
    """Keeps the pods of the cluster."""

    def whole(self, pods: Iterable[P_contra], /) -> None:
        """Replace all pods."""

    def changed(self, pod: P_contra, /) -> None:
        """Add or update a pod."""

    def gone(self, key: tuple[str, str], /) -> None:
        """Remove a pod, by namespace and name."""


class PodSource(Generic[O, P]):
    """Passes all pods and their changes to a listener.

    ``parse`` reads the fields in ``kind``, and raises BadMessageError for an invalid pod.
    ``ignored``: the effect of ignoring an invalid pod, for the log.
    ``blind`` receives with each event whether the API server cannot be read.
    """

    def __init__(
        self,
        kind: type[O],
        parse: Callable[[O], P],
        listener: PodListener[P],
        ignored: str,
        blind: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.trouble = "pods were not listed yet"
        """Why pods cannot be read; "": they can."""
        self.listed = False
        self._kind, self._parse, self._listener, self._ignored, self._blind = kind, parse, listener, ignored, blind

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        async with aclosing(follow(api, PODS, self._kind)) as events:
            async for event in events:
                self._blind(isinstance(event, Trouble))
                if isinstance(event, Trouble):
                    if not self.trouble:
                        log.warning("cannot list pods at the API server", extra={"why": event.why})
                    self.trouble = event.why
                else:
                    await self._pass_on(event)
                    self.trouble = ""

    async def _pass_on(self, event: Whole[O] | Changed[O] | Gone | Over) -> None:
        match event:
            case Whole(items=items):
                self._listener.whole(await self._all(items))
                self.listed = True
            case Changed(object=item):
                if (pod := self._read(item)) is not None:
                    self._listener.changed(pod)
            case Gone(name=name, namespace=namespace):
                self._listener.gone((namespace, name))

    async def _all(self, items: Iterable[O]) -> list[P]:
        pods = []
        for number, item in enumerate(items, 1):
            if (pod := self._read(item)) is not None:
                pods.append(pod)
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return pods

    def _read(self, item: O) -> P | None:
        """Parse a pod; None: it is invalid, which is logged. One invalid pod must not hide the others."""
        try:
            return self._parse(item)
        except BadMessageError as exc:
            log.warning("ignored an invalid pod: %s", self._ignored, extra={"pod": _name(item), "why": str(exc)})
            return None


def _name(item: object) -> str:
    metadata: dict[str, Any] = msgspec.to_builtins(item).get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
