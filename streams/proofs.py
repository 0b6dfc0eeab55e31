"""Accepts records only with a valid node proof, where the policy requires it. Pure."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy import InForce, Policy
from slacktide.schemas.proof import PROVEN, Verdict, Verifier
from slacktide.streams.records import Out, Record, Writer, place_of

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
        if minute > self._minute:
            self._minute, self._letters = minute, 0
        self._letters += 1
        return [self._writer.dead(record, reason(verdict), now_ms)] if self._letters <= LETTERS_A_MINUTE else []


class Proofs:
    """Checks records of one reader, by the policy that it follows. ``judge`` None: no keys."""

    def __init__(self, writer: Writer, judge: Judge | None = None) -> None:
        self.policies = InForce()
        self._judge = judge or by_keys()
        self._unproven = Unproven(writer)

    def policy(self, record: Record) -> None:
        """Apply a policy. Workers report invalid ones; the last valid one stays in force."""
        with suppress(BadMessageError):
            self.policies.take(record.key, record.value, place_of(record))

    def refused(self, record: Record, outs: list[Out], node: str | None = None) -> str:
        """Return why a record is rejected, and add a dead letter, if any, to ``outs``; "": it is accepted.

        ``node``: its sender; None: the node in its key.
        """
        signed = record if node is None else msgspec.structs.replace(record, key=node.encode())
        verdict = self._judge(signed, self.policies.policy)
        if verdict in PROVEN:
            return ""
        outs += self._unproven.dead(record, verdict, record.timestamp_ms)
        return reason(verdict)


def reason(verdict: Verdict) -> str:
    """Return why a record was rejected, for its sender and for dead letters."""
    return f"proof: {verdict}"
