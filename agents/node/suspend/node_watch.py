"""Watches the annotations of the agent's own Node, on its own thread. Only metadata is requested."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from slacktide.agents.http import HttpError
from slacktide.agents.node.apiserver import ApiServer
from slacktide.schemas.backoff import Backoff

log = logging.getLogger(__name__)

WATCH_S = 300
"""The API server ends a watch after this time, and the next one begins."""
RETRY_S, RETRY_MAX_S = 0.5, 30.0
_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_REMEDY = "grant the agent the verb watch on nodes (deploy/kubernetes/base/agent/rbac.yaml)"


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Change(msgspec.Struct):
    type: str
    object: _Object


class NodeWatch:
    """Reports the annotations of one Node as they change. ``server`` is used by this watch alone."""

    def __init__(self, server: ApiServer, node: str) -> None:
        self.uid = ""
        self._server = server
        self._node = node
        self._closed = threading.Event()

    def start(self, show: Callable[[Mapping[str, str]], object]) -> None:
        """Start watching. ``show`` is called on the watch's thread with all annotations after each change."""
        threading.Thread(target=self._work, args=(show,), name="node-watch", daemon=True).start()

    def close(self) -> None:
        """Stop reporting. The thread ends with its connection."""
        self._closed.set()

    def _work(self, show: Callable[[Mapping[str, str]], object]) -> None:
        backoff, reported = Backoff(RETRY_S, RETRY_MAX_S), False
        while not self._closed.is_set():
            try:
                self._watch(show, backoff)
                reported = False
            except (HttpError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
                if not reported:
                    why = {"node": self._node, "why": str(exc), "remedy": _REMEDY}
                    log.warning("cannot watch the node's annotations; the last ones stay in force", extra=why)
                reported = True
            self._closed.wait(backoff.next_s())

    def _watch(self, show: Callable[[Mapping[str, str]], object], backoff: Backoff) -> None:
        selector = f"metadata.name%3D{quote(self._node, safe='')}"
        path = f"/api/v1/nodes?watch=true&fieldSelector={selector}&timeoutSeconds={WATCH_S}"
        for line in self._server.watch(path, accept=_ACCEPT, silence_s=WATCH_S + 5):
            if self._closed.is_set():
                return
            change = msgspec.json.decode(line, type=_Change)
            if change.type == "ERROR":
                raise HttpError(f"the watch ended: {line[:200].decode(errors='replace')}")
            metadata = change.object.metadata
            if change.type in {"ADDED", "MODIFIED"} and metadata.name == self._node:
                backoff.reset()
                self.uid = metadata.uid
                show(metadata.annotations or {})
