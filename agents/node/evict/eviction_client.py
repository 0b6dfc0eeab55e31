"""Requests evictions and creates Events on its own thread, so that the agent never waits for the API server."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.event import CLUSTER, event_path
from slacktide.agents.http import CredentialsError, HttpError, UnreachedError
from slacktide.agents.node.apiserver import ApiServer
from slacktide.agents.node.evict.eviction_api import (
    WORDS,
    EvictionRequest,
    Reply,
    Verdict,
    body_of,
    event_of,
    node_event,
    path_of,
    reply_of,
    warning_of,
)
from slacktide.agents.node.evict.victims import INTERRUPTED
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Doors
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.inventory import Pod
from slacktide.schemas.outcome import NodeOutcome, Result, Spent

log = logging.getLogger(__name__)

EVENTS_MAX = 100
"""After an outage only the last ones are created. Kafka has all outcomes."""
EVENT_RETRY_S = 5.0
CLOSE_S = 1.0


class EvictionClient:
    """Queues requests and Events, and returns replies. Only ``close`` blocks, for at most 1 s.

    ``server`` is used by this client alone. ``wake`` is called on the client's thread when a reply arrives.
    """

    def __init__(self, server: ApiServer, wake: Callable[[], object] = lambda: None) -> None:
        self.wake = wake
        self._server = server
        self._requests: deque[EvictionRequest] = deque()
        self._replies: deque[Reply] = deque()
        self._events: deque[tuple[str, str, dict[str, object]]] = deque(maxlen=EVENTS_MAX)
        """Namespace, name of the object, and the Event."""
        self._changed = threading.Condition()
        self._closed = False
        self._trouble = ""
        self._thread = threading.Thread(target=self._work, name="evictions", daemon=True)
        self._thread.start()

    def ask(self, request: EvictionRequest) -> None:
        """Request the eviction of a pod. Each request gets exactly one reply later."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify()

    def replies(self) -> list[Reply]:
        """Return the replies received since the last call."""
        with self._changed:
            found = list(self._replies)
            self._replies.clear()
        return found

    def report(self, outcome: NodeOutcome) -> None:
        """Create an Event on the pod of an outcome; retry until the API server is back."""
        assert outcome.pod is not None
        self._due(outcome.pod.namespace, outcome.pod.name, event_of(outcome))

    def note(self, pod: Pod, *, node: str, reason: str, text: str, at_ms: int, once: str = "") -> None:
        """Create a warning Event on a pod; retry until the API server is back."""
        event = warning_of(pod, node=node, reason=reason, text=text, at_ms=at_ms, once=once)
        self._due(pod.namespace, pod.name, event)

    def note_node(self, node: str, uid: str, reason: str, *, at_ms: int) -> None:
        """Create an Event on the agent's own Node: suspended for this reason, or resumed if it is ""."""
        self._due(CLUSTER, node, node_event(node, uid, reason, at_ms=at_ms))

    def _due(self, namespace: str, name: str, event: dict[str, object]) -> None:
        with self._changed:
            self._events.append((namespace, name, event))
            self._changed.notify()

    def close(self) -> None:
        """Send no further eviction. Pending Events are tried once."""
        with self._changed:
            self._closed = True
            self.wake = lambda: None
            self._changed.notify()
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        pause_s: float | None = None
        while True:
            with self._changed:
                while not (self._requests or self._closed or (self._events and pause_s is None)):
                    if not self._changed.wait(pause_s):
                        pause_s = None
                if self._closed and (pause_s is not None or not self._events):
                    break
                request = self._requests.popleft() if self._requests and not self._closed else None
                event = self._events[0] if request is None else None
            if request is not None:
                self._grant(request)
            elif event is not None:
                pause_s = None if self._created(event) else EVENT_RETRY_S
        self._server.close()

    def _grant(self, request: EvictionRequest) -> None:
        try:
            replies = [reply_of(request, self._server.post(path_of(request), body_of(request)))]
        except HttpError as exc:
            verdict: Verdict = "forbidden" if isinstance(exc, CredentialsError) else "away"
            reached = not isinstance(exc, UnreachedError)
            replies = [Reply(uid=request.uid, verdict=verdict, message=str(exc), reached=reached)]
            # Queued requests would fail the same way.
            with self._changed:
                behind, self._requests = self._requests, deque()
            replies += [Reply(uid=one.uid, verdict=verdict, message=str(exc), reached=False) for one in behind]
        self._log_trouble(request, replies[0])
        with self._changed:
            self._replies.extend(replies)
        self.wake()

    def _log_trouble(self, request: EvictionRequest, reply: Reply) -> None:
        before, self._trouble = self._trouble, WORDS.get(reply.verdict, "")
        if self._trouble and self._trouble != before:
            log.warning("cannot evict pod %s/%s: %s: %s", request.namespace, request.name, self._trouble, reply.message)
        elif before and not self._trouble:
            log.info("the API server accepts evictions again")

    def _created(self, event: tuple[str, str, dict[str, object]]) -> bool:
        """Return whether no retry is needed: created, already present, or refused for good."""
        namespace, name, body = event
        try:
            answer = self._server.post(event_path(namespace), body)
        except HttpError:
            return False
        if answer.status == 429 or answer.status >= 500:
            return False
        if answer.status not in {200, 201, 202, 409}:
            log.warning("cannot create an Event for %s/%s: %d %s", namespace, name, answer.status, answer.words)
        with self._changed:
            if self._events and self._events[0] is event:
                self._events.popleft()
        return True


SECOND_NS = 1_000_000_000
BACKOFF_S, BACKOFF_S_MAX = 1, 30
"""Upper bounds of the first and of the longest wait."""
KEPT_S = 10
"""A PodDisruptionBudget allows it again once another pod is ready, which takes about that long."""
ANSWER_NS = 1_000_000_000
"""A pod whose request is unanswered for longer does not count as terminating."""

_TROUBLES = frozenset({"forbidden", "fenced", "overloaded", "away"})


class Patience:
    """Learns from replies which requests must wait, and why."""

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self.away = False
        """Whether the API server did not answer last time, so that no pod can be evicted."""
        self.why = ""
        """Why requests fail, apart from single pods; "": they do not."""
        self._until_ns = 0
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX, random=random)
        self._kept: dict[str, tuple[int, str]] = {}

    def replied(self, reply: Reply, now_ns: int) -> None:
        """Process a reply."""
        why = f"{WORDS.get(reply.verdict, '')}: {reply.message}"
        self.away = reply.verdict == "away"
        if reply.verdict not in _TROUBLES:
            self.why, self._until_ns = "", 0
            self._backoff.reset()
        else:
            self.why = why
            asked_s = reply.retry_after_s or 0
            if now_ns >= self._until_ns:  # otherwise it was sent at the same time as the last one
                self._until_ns = now_ns + round(self._backoff.next_s() * SECOND_NS)
            self._until_ns = max(self._until_ns, now_ns + asked_s * SECOND_NS)
        if reply.verdict == "kept":
            wait_s = max(KEPT_S, reply.retry_after_s or 0)
            self._kept[reply.uid] = now_ns + wait_s * SECOND_NS, why

    def refuses(self, uid: str, now_ns: int, *, asking: bool) -> str:
        """Return why not to request a pod now; "": request it. ``asking``: another request is open, one is enough."""
        if self.why and (asking or now_ns < self._until_ns):
            return self.why
        until_ns, why = self._kept.get(uid, (0, ""))
        return why if now_ns < until_ns else ""

    def kept(self, now_ns: int) -> list[str]:
        """Return the uids of pods that the API server protects for now."""
        self._kept = {uid: kept for uid, kept in self._kept.items() if now_ns < kept[0]}
        return sorted(self._kept)


UNANSWERED = "the API server has not answered yet"
_RESULTS: dict[Verdict, Result] = {
    "gone": "unchanged",
    "kept": "refused",
    "forbidden": "refused",
    "fenced": "refused",
    "overloaded": "refused",
    "away": "failed",
}


class EvictionApi(Protocol):
    """Requests evictions and creates Events in the background: no call blocks."""

    def ask(self, request: EvictionRequest) -> None:
        """Request the eviction of a pod. Each request gets exactly one reply later."""

    def replies(self) -> list[Reply]:
        """Return the replies received since the last call."""

    def report(self, outcome: NodeOutcome) -> None:
        """Create an Event on the pod of an outcome; retry until the API server is back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One open eviction request."""

    begin: NodeOutcome
    grace_ms: int
    taken: Taken | None
    """None: requested by an earlier run, which also spent the credit."""
    asked_ns: int


class Requests:
    """Unanswered eviction requests, by uid."""

    def __init__(self, eviction_client: EvictionApi, doors: Doors) -> None:
        self.client = eviction_client
        self._doors, self._mono_ns = doors, doors.mono_ns
        self.patience = Patience()
        self._asked: dict[str, Asked] = {}

    @property
    def dying(self) -> list[str]:
        """Uids of pods that are about to terminate."""
        now_ns = self._mono_ns()
        return [uid for uid, asked in self._asked.items() if now_ns - asked.asked_ns < ANSWER_NS]

    def asked(self, uid: str) -> bool:
        """Return whether the request for a pod is open."""
        return uid in self._asked

    def open(self, uid: str) -> bool:
        """Return whether the request for a pod is open, and was sent within the last second."""
        return uid in self.dying

    def refuses(self, uid: str) -> str:
        """Return why not to request a pod now; "": request it."""
        if uid in self._asked:
            return UNANSWERED
        return self.patience.refuses(uid, self._mono_ns(), asking=bool(self._asked))

    def ask(self, request: EvictionRequest, begin: NodeOutcome, grace_ms: int, taken: Taken | None) -> None:
        """Send a request. The intent, ``begin``, is written and credit is reserved already."""
        self._asked[request.uid] = Asked(begin=begin, grace_ms=grace_ms, taken=taken, asked_ns=self._mono_ns())
        self.client.ask(request)

    def settle(self, credit_account: CreditAccount) -> Sequence[Asked]:
        """Read the replies, and report pods that are not evicted. Return requests whose pods terminate or are gone."""
        going = []
        for reply in self.client.replies():
            self.patience.replied(reply, self._mono_ns())
            asked = self._asked.pop(reply.uid)
            begin, why = asked.begin, f"{WORDS.get(reply.verdict, '')}: {reply.message}"
            if asked.taken is None:  # sent by an earlier run, and perhaps received
                why = f"{INTERRUPTED}: {why}"
            else:  # credit is spent also if the server may have received the request
                credit_account.settle(goes=reply.verdict == "evicted" or (reply.verdict == "away" and reply.reached))
                spent = Spent(evictions=credit_account.spent, epoch=credit_account.epoch)
                begin = msgspec.structs.replace(begin, spent=spent)
            if reply.verdict != "evicted":
                begin = msgspec.structs.replace(begin, result=_RESULTS[reply.verdict], reason=why)
            asked = replace(asked, begin=begin)
            if reply.verdict in {"evicted", "gone"}:
                going.append(asked)
            else:
                self._doors.report(asked.begin, asked.taken)
        return going
