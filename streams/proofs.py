"""Accepts records only with a valid node proof, where the policy requires it. Pure."""

from collections.abc import Callable
from typing import TypeAlias

from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import Verdict, Verifier
from slacktide.streams.records import Out, Record, Writer

LETTERS_A_MINUTE = 10
"""Dead letters for rejected records. The metric counts all of them."""
_MINUTE_MS = 60_000


Judge: TypeAlias = Callable[[Record, Policy], Verdict]
"""Verifies the node proof of a record, as the policy requires; "": it is valid, or not required."""


def by_keys(verifier: Verifier | None = None) -> Judge:
    """Verify by the cluster keys. Without a key every record that needs a proof is rejected."""
    keys = verifier or Verifier()

    def verdict(record: Record, policy: Policy) -> Verdict:
        if policy.node_proof == "off":
            return ""
        return keys.check(record.topic, record.key, record.value, record.headers, record.timestamp_ms)

    return verdict


def believes(_: Record, __: Policy) -> Verdict:
    """Accept all records: they were verified before."""
    return ""


class Unproven:
    """Makes a limited number of dead letters, so that forged records cannot flood the topic."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._minute, self._letters = -1, 0

    def dead(self, record: Record, verdict: Verdict, now_ms: int) -> list[Out]:
        """Return a dead letter for the record; nothing above the limit per minute of append time."""
        minute = record.timestamp_ms // _MINUTE_MS
        if minute != self._minute:
            self._minute, self._letters = minute, 0
        self._letters += 1
        return [self._writer.dead(record, reason(verdict), now_ms)] if self._letters <= LETTERS_A_MINUTE else []


def reason(verdict: Verdict) -> str:
    """Return why a record was rejected, for its sender and for dead letters."""
    return f"proof: {verdict}"
