"""Whether a node is suspended: by its annotation, by a file in the state folder, or by the policy.

The last annotation from the API server is saved on disk, for a restart while the API server is unreachable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from slacktide.agents.event import event_body
from slacktide.agents.files import write_whole
from slacktide.agents.http import HttpError
from slacktide.agents.node.apiserver import ApiServer
from slacktide.agents.node.evict.eviction_api import CONTROLLER
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.policy import Policy

log = logging.getLogger(__name__)

ANNOTATION = "slacktide.io/suspend"
FILE = "suspend"
"""File in the agent's state folder. Creating it suspends the node."""
KEPT = "suspend-annotation"
"""File in the agent's state folder: the last value of the annotation from the API server."""
OFF = "false"
"""The only value of the annotation that does not suspend: a mistyped ``yes`` must not leave limits in force."""
By = Literal["annotation", "file", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """What suspends a node."""

    by: By
    reason: str


class Switch:
    """One node's switch. Never raises. If ``watched``, only annotations from the API server count."""

    def __init__(self, folder: Path, *, watched: bool) -> None:
        self._file, self._kept = folder / FILE, folder / KEPT
        self._watched = watched
        self._value = self._read() if watched else None

    def shown(self, annotations: Mapping[str, str]) -> None:
        """Record the node's annotations from the API server."""
        value = annotations.get(ANNOTATION)
        if value == self._value:
            return
        self._value = value
        try:
            if value is None:
                self._kept.unlink(missing_ok=True)
            else:
                write_whole(self._kept, value.encode())
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(self._kept), "why": str(exc)})

    def suspended(self, annotations: Mapping[str, str], policy: Policy) -> Suspended | None:
        """Return what suspends the node, or None. ``annotations`` count only if none come from the API server."""
        value = self._value if self._watched else annotations.get(ANNOTATION)
        if value is not None and value != OFF:
            return Suspended(by="annotation", reason=f"the node's annotation {ANNOTATION}: {value[:40]!r}")
        if self._file_exists():
            return Suspended(by="file", reason=f"the file {self._file}")
        if policy.agent.suspend:
            return Suspended(by="policy", reason='"suspend": true in agent-config of the policy')
        return None

    def _file_exists(self) -> bool:
        try:
            return self._file.exists()
        except OSError:
            return False

    def _read(self) -> str | None:
        with suppress(OSError, UnicodeDecodeError):
            return self._kept.read_text()
        return None


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


def event_of(node: str, uid: str, reason: str, *, at_ms: int) -> dict[str, object]:
    """Return an Event on a Node. ``uid`` "": unknown; ``reason`` "": resumed; ``at_ms`` since the epoch."""
    note = f"limits are lifted and no pod is evicted: {reason}" if reason else "limits and evictions are in force again"
    return event_body(
        {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid or node},
        end=f".slacktide-suspend-{at_ms:x}",
        by=(CONTROLLER, node),
        reason="SlacktideSuspended" if reason else "SlacktideResumed",
        action="Suspend" if reason else "Resume",
        note=note,
        at_ms=at_ms,
        warning=bool(reason),
    )
