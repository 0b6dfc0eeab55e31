"""Follows objects of a kind that a cluster may lack: its definition may be applied later, or never."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from slacktide.agents.cluster.watching import ignored, inform
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.resource import NOT_FOUND, ApiError, ApiRefusedError, Resource

log = logging.getLogger(__name__)

SERVED_S = 30.0
"""How often it is checked whether the API server serves the kind."""


class OptionalKind:
    """The objects of one kind.

    ``take`` adds or updates an object, and returns a key that ``forget`` gets once the object is gone. Whatever it
    raises costs this object alone.
    """

    def __init__(
        self, resource: Resource, take: Callable[[Mapping[str, Any]], str], forget: Callable[[str], object]
    ) -> None:
        self.trouble = ""
        """Why the kind cannot be read; "": it can, or it is not served."""
        self.listed = False
        """Whether all objects were read once, or cannot be."""
        self._resource, self._take, self._forget = resource, take, forget
        self._keys: dict[tuple[str, str], str] = {}
        """By namespace and name."""

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while not await self._is_served(api):  # noqa: ASYNC110 - the API server does not tell
            await asyncio.sleep(SERVED_S)
        updates = follow(api, self._resource, dict[str, Any])
        await inform(updates, self._whole, self._changed, lambda *name: self._gone(name), self._troubled)

    async def _is_served(self, api: ApiServer) -> bool:
        try:
            await api.read(self._resource.group_path, dict)
        except ApiError as exc:
            absent = isinstance(exc, ApiRefusedError) and exc.status == NOT_FOUND
            self.listed = True
            self._troubled("" if absent else str(exc))
            return False
        return True

    def _whole(self, items: list[dict[str, Any]]) -> None:
        listed = {self._changed(item) for item in items}
        for name in self._keys.keys() - listed:
            self._gone(name)
        self.listed = True

    def _changed(self, item: Mapping[str, Any]) -> tuple[str, str]:
        metadata = item["metadata"]
        name = str(metadata.get("namespace", "")), str(metadata["name"])
        try:
            key = self._take(item)
        except Exception as exc:  # noqa: BLE001 - whatever is in one object costs this object alone
            ignored(self._resource.plural, item, exc)
            return name
        if (known := self._keys.get(name)) not in (None, key):
            self._forget(str(known))  # its deletion was missed
        self._keys[name] = key
        return name

    def _gone(self, name: tuple[str, str]) -> None:
        if (key := self._keys.pop(name, None)) is not None:
            self._forget(key)

    def _troubled(self, why: str) -> None:
        if why and not self.trouble:
            log.warning("cannot read objects", extra={"kind": self._resource.plural, "why": why})
        self.trouble = why
        self.listed |= bool(why)
