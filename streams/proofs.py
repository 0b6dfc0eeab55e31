"""Which records count: those that prove their node, where the policy asks for that. Pure."""

from __future__ import annotations

from typing import Protocol

from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import Verdict, Verifier
from slacktide.streams.records import Out, Record, Writer

LETTERS_A_MINUTE = 10
"""Dead letters of unproven records. The metric counts all of them."""
_MINUTE_MS = 60_000


class Judge(Protocol):
    """Finds whether a record proves its node."""

    def verdict(self, record: Record, policy: Policy) -> Verdict:
        """Judge one record by what the policy asks for."""


class ByKeys:
    """Judges by the cluster keys. Without a key every record is refused that the policy wants proven."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self._verifier = verifier or Verifier()

    def verdict(self, record: Record, policy: Policy) -> Verdict:
        """Check the record's MAC; "" where the policy asks for none."""
        if policy.node_proof == "off":
            return ""
        return self._verifier.check(record.topic, record.key, record.value, record.headers, record.timestamp_ms)


class Believes:
    """Refuses nothing: what did not prove its node was left out before."""

    def verdict(self, _: Record, __: Policy) -> Verdict:
        """Nothing is checked."""
        return ""


class Unproven:
    """Makes a few dead letters of the records that were refused: whoever forges must not fill the topic."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._minute, self._letters = -1, 0

    def dead(self, record: Record, verdict: Verdict, now_ms: int) -> list[Out]:
        """The record as a dead letter, or nothing where there were enough in this minute of append time."""
        minute = record.timestamp_ms // _MINUTE_MS
        if minute != self._minute:
            self._minute, self._letters = minute, 0
        self._letters += 1
        return [self._writer.dead(record, reason(verdict), now_ms)] if self._letters <= LETTERS_A_MINUTE else []


def reason(verdict: Verdict) -> str:
    """Why an unproven record is not used, for its sender and for dead letters."""
    return f"proof: {verdict}"
