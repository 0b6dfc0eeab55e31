"""Open eviction requests, from the intent to the reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.node.actuator import Actuator
from slacktide.agents.node.evict.eviction_api import WORDS, EvictionRequest, Reply, Verdict
from slacktide.agents.node.evict.patience import ANSWER_NS, Patience
from slacktide.agents.node.evict.victims import INTERRUPTED
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Reporter
from slacktide.schemas.outcome import NodeOutcome, Result, Spent

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

    def __init__(
        self, eviction_client: EvictionApi, actuator: Actuator, reporter: Reporter, mono_ns: Callable[[], int]
    ) -> None:
        self._client = eviction_client
        self._actuator = actuator
        self._reporter = reporter
        self._mono_ns = mono_ns
        self._patience = Patience()
        self._asked: dict[str, Asked] = {}

    @property
    def dying(self) -> list[str]:
        """Uids of pods that are about to terminate."""
        now_ns = self._mono_ns()
        return [uid for uid, asked in self._asked.items() if now_ns - asked.asked_ns < ANSWER_NS]

    @property
    def kept(self) -> list[str]:
        """Uids of pods that the API server protects for now."""
        return self._patience.kept(self._mono_ns())

    @property
    def trouble(self) -> str:
        """Why requests fail, apart from single pods; "": they do not."""
        return self._patience.why

    @property
    def away(self) -> bool:
        """Whether the API server is unreachable."""
        return self._patience.away

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
        return self._patience.refuses(uid, self._mono_ns(), asking=bool(self._asked))

    def ask(self, request: EvictionRequest, begin: NodeOutcome, grace_ms: int, taken: Taken | None) -> None:
        """Send a request. The intent, ``begin``, is written and credit is reserved already."""
        self._asked[request.uid] = Asked(begin=begin, grace_ms=grace_ms, taken=taken, asked_ns=self._mono_ns())
        self._client.ask(request)

    def report(self, outcome: NodeOutcome) -> None:
        """Create an Event on the pod of an outcome."""
        self._client.report(outcome)

    def settle(self, credit_account: CreditAccount) -> Sequence[Asked]:
        """Read the replies, and report pods that are not evicted. Return requests whose pods terminate or are gone."""
        going = []
        for reply in self._client.replies():
            self._patience.replied(reply, self._mono_ns())
            asked = _settled(self._asked.pop(reply.uid), reply, credit_account)
            if reply.verdict in {"evicted", "gone"}:
                going.append(asked)
            else:
                self._actuator.conclude(self._reporter.dated(asked.begin, asked.taken))
        return going


def _settled(asked: Asked, reply: Reply, credit_account: CreditAccount) -> Asked:
    """Return the request with its final outcome. Credit is spent also if the server may have received the request."""
    begin, why = asked.begin, f"{WORDS.get(reply.verdict, '')}: {reply.message}"
    if asked.taken is None:  # sent by an earlier run, and perhaps received
        why = f"{INTERRUPTED}: {why}"
    else:
        credit_account.settle(goes=reply.verdict == "evicted" or (reply.verdict == "away" and reply.reached))
        begin = msgspec.structs.replace(begin, spent=Spent(evictions=credit_account.spent, epoch=credit_account.epoch))
    if reply.verdict != "evicted":
        begin = msgspec.structs.replace(begin, result=_RESULTS[reply.verdict], reason=why)
    return replace(asked, begin=begin)
