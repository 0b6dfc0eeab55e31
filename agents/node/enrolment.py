"""Renews the node's key from the bridge, with the pod's ServiceAccount token."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from slacktide.agents.http import Access, HttpError, Https
from slacktide.agents.metrics import AgentMetrics
from slacktide.agents.node.proof import RENEW_S, WARN_S, Prover
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode
from slacktide.schemas.enrolment import PATH, Enrolled
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.proof import PROVEN, Verdict

log = logging.getLogger(__name__)

PORT = 9447
LOOK_S = 1.0
RETRY_S, RETRY_S_MAX = 4.0, 120.0
REFUSED_S = 30.0
"""Interval of renewals while workers refuse the key. They may not have the newest cluster key yet."""
TRUSTED_S = 10.0
"""A refusal this soon after a proven sample means that another sender uses the node's name."""
WARN_EACH_S = 3_600.0
RENEWS: frozenset[Verdict] = frozenset({"absent", "unknown key", "expired", "forged"})


class EnrolmentError(SlacktideError):
    """The bridge issued no key."""


class Enrolment:
    """Requests a key at start, after half of its life, and when workers refuse it.

    Raises:
        EnrolmentError: the address is invalid.
    """

    def __init__(self, access: Access, prover: Prover, metrics: AgentMetrics, backoff: Backoff | None = None) -> None:
        try:
            self._https = Https(access, port=PORT, untrusted="give the bridge's CA with --enrol-ca")
        except ValueError as exc:
            raise EnrolmentError(
                f"{access.url}: not the address of the enrolment endpoint; accepted: https://HOST:PORT"
            ) from exc
        self._prover = prover
        self._metrics = metrics
        self._backoff = backoff or Backoff(RETRY_S, RETRY_S_MAX)
        self._refused: Verdict = ""
        self._proven_s = float("-inf")
        self._why = "the bridge has not answered yet"
        self._next_s = 0.0
        self._warned_s = float("-inf")

    @property
    def trouble(self) -> str:
        """Why this node's records may be refused; "": they are accepted."""
        refused = f"samples are refused (proof: {self._refused})" if self._refused else ""
        return refused or (self._prover.trouble and f"{self._prover.trouble}: {self._why}")

    def answered(self, proof: Verdict) -> None:
        """Record a worker's verdict on a sample of this boot."""
        now_s = asyncio.get_running_loop().time()
        if proof in PROVEN:
            self._refused, self._proven_s = "", now_s
        elif now_s - self._proven_s >= TRUSTED_S:
            if not self._refused:
                log.warning("workers refuse this node's samples", extra={"proof": proof})
            self._refused = proof

    async def run(self) -> None:
        """Renew the key until cancelled."""
        try:
            while True:
                now_s = asyncio.get_running_loop().time()
                if now_s >= self._next_s and self._due:
                    await self._renew()
                self._report(now_s)
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.to_thread(self._https.close)

    @property
    def _due(self) -> bool:
        return self._prover.left_s <= RENEW_S or self._refused in RENEWS

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            enrolled = await asyncio.to_thread(self._ask)
            self._prover.use(enrolled)
        except SlacktideError as exc:
            if self._why != str(exc):
                log.warning("cannot enrol this node", extra={"why": str(exc)})
            self._why = str(exc)
            self._next_s = loop.time() + self._backoff.next_s()
            return
        log.info("this node has enrolled", extra={"key_id": enrolled.key_id, "expires_s": enrolled.expires_s})
        self._why, self._next_s = "", loop.time() + REFUSED_S
        self._backoff.reset()

    def _ask(self) -> Enrolled:
        """Request a key. Blocking. Repeated requests give several valid keys."""
        try:
            answer = self._https.ask(PATH, method="POST", body=b"{}")
        except HttpError as exc:
            raise EnrolmentError(f"the bridge cannot be reached: {exc}") from exc
        if answer.status != HTTPStatus.OK:
            self._https.close()  # another replica may accept it, and the token is read again
            raise EnrolmentError(f"the bridge answered {answer.status}: {answer.words}")
        return decode(answer.body, Enrolled)

    def _report(self, now_s: float) -> None:
        left_s = self._prover.left_s
        self._metrics.proof_expires_s(left_s)
        if left_s <= WARN_S and self._why and now_s - self._warned_s >= WARN_EACH_S:
            self._warned_s = now_s
            log.warning("%s, and the bridge issues no new key", self._prover.trouble, extra={"why": self._why})
