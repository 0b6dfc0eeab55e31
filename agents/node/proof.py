"""Signs this node's records with its key, and renews the key from the bridge by the pod's ServiceAccount token."""

import asyncio
import logging
import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import msgspec

from slacktide.agents.http import Access, HttpError, Https
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.proof import ENROL_PATH, NODE_KEY_LIFE_S, PROVEN, Enrolled, NodeKey, Verdict
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

FILE = "proof-key.json"
RENEW_S = NODE_KEY_LIFE_S // 2
WARN_S = NODE_KEY_LIFE_S // 4
"""Remaining life at which renewals have failed for six hours."""


class Prover:
    """The key of this node, saved in ``folder`` readable by its owner alone; None: not saved."""

    def __init__(self, node: str, folder: Path | None, now_ms: Callable[[], int]) -> None:
        self._node = node
        self._file = None if folder is None else folder / FILE
        self._now_ms = now_ms
        self._key = self._kept()

    @property
    def left_s(self) -> int:
        """Seconds until the key expires; 0: no key, or expired."""
        return 0 if self._key is None else max(0, self._key.expires_s - self._now_ms() // 1_000)

    @property
    def trouble(self) -> str:
        """Why the key is missing, expired or about to expire; "": it is valid."""
        if self._key is None:
            return "this node has no key to sign its records"
        if not self.left_s:
            return "this node's key has expired"
        return "" if self.left_s > WARN_S else f"this node's key expires in {self.left_s // 60} min"

    def sign(self, out: Out) -> Out:
        """Return the record with its proof, or unchanged without a key. Call it right before sending."""
        if self._key is None or out.value is None:
            return out
        return msgspec.structs.replace(out, headers=(*out.headers, self._key.header(out.topic, out.value)))

    def use(self, enrolled: Enrolled) -> None:
        """Sign with this key from now on, and save it. Raises BadMessageError if it is invalid or another node's."""
        self._key = self._read(enrolled)
        if self._file is None:
            return
        fresh = self._file.with_name(f"{FILE}.new")
        try:
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(encode(enrolled))
            fresh.replace(self._file)
        except OSError as exc:
            log.warning("the node's key could not be stored for the next start", extra={"why": str(exc)})

    def _read(self, enrolled: Enrolled) -> NodeKey:
        if enrolled.node != self._node:
            raise BadMessageError(
                "Enrolled", f"the key belongs to node {enrolled.node!r}, but this agent runs on {self._node!r}"
            )
        return enrolled.key()

    def _kept(self) -> NodeKey | None:
        if self._file is None:
            return None
        try:
            return self._read(decode(self._file.read_bytes(), Enrolled))
        except FileNotFoundError:
            return None
        except (OSError, BadMessageError) as exc:
            log.warning("the node's key is lost; requesting a new one", extra={"why": str(exc)})
            return None


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
                if now_s >= self._next_s and (self._prover.left_s <= RENEW_S or self._refused in RENEWS):
                    await self._renew()
                left_s = self._prover.left_s
                self._metrics.proof_expires_s(left_s)
                if left_s <= WARN_S and self._why and now_s - self._warned_s >= WARN_EACH_S:
                    self._warned_s = now_s
                    log.warning("%s, and the bridge issues no new key", self._prover.trouble, extra={"why": self._why})
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.to_thread(self._https.close)

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
            answer = self._https.ask(ENROL_PATH, method="POST", body=b"{}")
        except HttpError as exc:
            raise EnrolmentError(f"the bridge cannot be reached: {exc}") from exc
        if answer.status != HTTPStatus.OK:
            self._https.close()  # another replica may accept it, and the token is read again
            raise EnrolmentError(f"the bridge answered {answer.status}: {answer.words}")
        return decode(answer.body, Enrolled)
