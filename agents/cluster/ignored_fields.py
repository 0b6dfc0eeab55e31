"""Reports fields of objects that a part ignores: counted, in the log, and as one Event per object, field and text."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.ignored import REASON, Ignored, once_of
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import ApiError, IgnoreStatus

log = logging.getLogger(__name__)

LOOK_S, PAUSE_S, RETRY_S = 1.0, 0.1, 5.0
EVENTS_MAX = 1_000
"""Of the fields beyond, the oldest get no Event."""
NEVER = (400, 422)
"""The API server rejects this Event, now and later."""
_KINDS = {"Pod": ("pods", "v1"), "Node": ("nodes", "v1"), "Job": ("jobs", "batch/v1")}


class IgnoredFields:
    """The ignored fields that one replica reads. ``part``: the component, such as ``bridge``."""

    def __init__(self, part: str, replica: str, now_ms: Callable[[], int]) -> None:
        self.trouble = ""
        """Why the last Event was not created; "": it was."""
        self._source = EventSource(part=part, replica=replica, action="Read")
        self._now_ms = now_ms
        self._known = {kind: Ignored(plural) for kind, (plural, _) in _KINDS.items()}
        self._due: deque[tuple[About, str]] = deque(maxlen=EVENTS_MAX)

    def take(self, kind: str, metadata: Mapping[str, Any], notes: Sequence[str]) -> None:
        """Record all ignored fields of an object."""
        name, namespace, uid = (str(metadata.get(field) or "") for field in ("name", "namespace", "uid"))
        for note in self._known[kind].new(uid or f"{namespace}/{name}", notes):
            log.warning(
                "ignored a field", extra={"kind": kind, "object": f"{namespace}/{name}".lstrip("/"), "why": note}
            )
            about = About(namespace=namespace, name=name, uid=uid, kind=kind, api_version=_KINDS[kind][1])
            self._due.append((about, note))

    async def run(self, api: ApiServer) -> None:
        """Create the Events until cancelled."""
        while True:
            try:
                while self._due:
                    await self._create(api, *self._due[0])
                    await asyncio.sleep(PAUSE_S)
                self.trouble = ""
                await asyncio.sleep(LOOK_S)
            except ApiError as exc:
                self.trouble = str(exc)
                await asyncio.sleep(RETRY_S)

    async def _create(self, api: ApiServer, about: About, note: str) -> None:
        now_ms = self._now_ms()
        with IgnoreStatus(*NEVER):
            await create_event(api, self._source, about, REASON, note, now_ms=now_ms, once=once_of(note))
        if self._due and self._due[0] == (about, note):
            self._due.popleft()
