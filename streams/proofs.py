"""Accepts records only with a valid node proof, where the policy requires it. Pure."""

from __future__ import annotations

from typing import Protocol

from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import Verdict, Verifier
from slacktide.streams.records import Out, Record, Writer

LETTERS_A_MINUTE = 10
"""Dead letters for rejected records. The metric counts all of them."""
_MINUTE_MS = 60_000


class Judge(Protocol):
    """Verifies the node proof of records."""

    def verdict(self, record: Record, policy: Policy) -> Verdict:
        """Verify one record, as the policy requires."""


class ByKeys:
    """Verifies by the cluster keys. Without a key every record that needs a proof is rejected."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self._verifier = verifier or Verifier()

    def verdict(self, record: Record, policy: Policy) -> Verdict:
        """Verify the record's MAC; "": valid, or not required."""
        if policy.node_proof == "off":
            return ""
        return self._verifier.check(record.topic, record.key, record.value, record.headers, record.timestamp_ms)


class Believes:
    """Accepts all records: they were verified before."""

    def verdict(self, _: Record, __: Policy) -> Verdict:
        """Accept the record."""
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
