"""The agent's small client of the API server, and what it watches there: its Node, and whether it is uninstalled."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from slacktide.agents.http import Access, Answer, HttpError, Https
from slacktide.agents.listening import bracketed
from slacktide.agents.workload import Standing, is_removed, namespace_of, path_of, standing
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.text import answer_of

log = logging.getLogger(__name__)

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PORT = 443
_UNTRUSTED = "give the CA of the API server with --api-ca"


class ApiServerError(SlacktideError):
    """The address of the API server is invalid."""


def in_cluster(environment: Mapping[str, str], account: Path = ACCOUNT) -> Access | None:
    """Return the access of a container in a cluster; None: not in a cluster, or no token."""
    host, token = environment.get(HOST), account / "token"
    if not host or not token.is_file():
        return None
    return Access(url=f"https://{bracketed(host)}:{environment.get(PORT) or _PORT}", token=token, ca=account / "ca.crt")


class ApiServer(Https):
    """Client of one API server. Requests raise HttpError if there is no complete response.

    Raises:
        ApiServerError: the address is invalid.
    """

    def __init__(self, access: Access) -> None:
        try:
            super().__init__(access, port=_PORT, untrusted=_UNTRUSTED)
        except ValueError as exc:
            raise ApiServerError(
                f"{access.url}: not the address of an API server; accepted: https://HOST:PORT"
            ) from exc
        self.url = access.url.rstrip("/")

    def get(self, path: str) -> Answer:
        """GET a path."""
        return self.ask(path)

    def post(self, path: str, body: object) -> Answer:
        """POST to a path. The request may be sent twice, so it must be idempotent.

        Raises:
            HttpError: no complete response; ``UnreachedError``: the server has certainly not received the request.
        """
        return self.ask(path, method="POST", body=msgspec.json.encode(body))


WATCH_S = 300
"""The API server ends a watch after this time, and the next one begins."""
WATCH_RETRY_S, WATCH_RETRY_MAX_S = 0.5, 30.0
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
        backoff, reported = Backoff(WATCH_RETRY_S, WATCH_RETRY_MAX_S), False
        while not self._closed.is_set():
            try:
                self._watch(show, backoff)
                reported = False
            except (HttpError, TextError) as exc:
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
            change: _Change = answer_of(line, _Change, where="the watch")
            if change.type == "ERROR":
                raise HttpError(f"the watch ended: {line[:200].decode(errors='replace')}")
            metadata = change.object.metadata
            if change.type in {"ADDED", "MODIFIED"} and metadata.name == self._node:
                backoff.reset()
                self.uid = metadata.uid
                show(metadata.annotations or {})


ANSWER_S = 2.0
"""How long an ending agent waits for the API server. Without an answer it leaves limits in force."""
RETRY_S, RETRY_MAX_S = 1.0, 60.0


class Removal:
    """Reads the agent's DaemonSet (NAMESPACE/NAME) and namespace from the API server at start and at exit."""

    def __init__(self, access: Access, daemon_set: str) -> None:
        self._access = access
        self._daemon_set = daemon_set
        self._was_there = False

    async def run(self) -> None:
        """Retry until the API server has answered, then wait until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while (now := await asyncio.to_thread(self._ask)) == "unknown":  # noqa: ASYNC110 - nothing signals that the server is back
            await asyncio.sleep(backoff.next_s())
        self._was_there = now == "there"
        if not self._was_there:
            log.warning(
                "the DaemonSet cannot be read: if it is deleted, limits may stay in force",
                extra={"daemon_set": self._daemon_set, "standing": now, "remedy": "slacktide agent restore"},
            )
        await asyncio.Event().wait()

    async def removed(self) -> bool:
        """Return whether the DaemonSet is deleted; False if the API server does not answer within 2 s."""
        now: Standing = "unknown"
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                now = await asyncio.to_thread(self._ask)
        removed = is_removed(now, was_there=self._was_there)
        log.info(
            "the agent is being removed: it removes all limits" if removed else "the agent stops: limits stay in force",
            extra={"daemon_set": self._daemon_set, "standing": now},
        )
        return removed

    def _ask(self) -> Standing:
        """Use a new connection, since an earlier request may still be open on another thread."""
        server = ApiServer(self._access)
        try:
            answer = server.get(path_of("daemonsets", self._daemon_set))
            now = standing(answer.status, answer.body)
            if now == "there":
                around = server.get(namespace_of(self._daemon_set))
                now = "deleted" if standing(around.status, around.body) == "deleted" else now
        except HttpError as exc:
            log.info("no answer about the DaemonSet", extra={"daemon_set": self._daemon_set, "why": str(exc)})
            return "unknown"
        finally:
            server.close()
        return now
