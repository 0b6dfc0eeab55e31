"""Decides whether the stream or the guard is in charge, and which commands may act. Pure.

Order comes from a sample's ``seq`` within a boot, never an offset. If no command arrives before the deadline, the guard
is in charge until two successive samples are answered in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.sample import NodeSample

HELD_SAMPLES = 64
IN_TIME_TO_HAND_BACK = 2

Refusal = Literal["foreign", "other boot", "unknown sample", "expired", "superseded", "repeated", "older"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A sample with all inputs of its decision."""

    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]
    taken_ns: int


class Protocol:
    """Order of samples and commands of one boot, and who is in charge."""

    def __init__(self, *, node: str, boot_id: str, deadline_ns: int) -> None:
        self.in_charge: Literal["stream", "guard"] = "stream"
        self._node = node
        self._boot_id = boot_id
        self._deadline_ns = deadline_ns
        self._held: deque[Taken] = deque(maxlen=HELD_SAMPLES)
        self._answered_seq = -1
        self._settled_seq = -1
        self._settled_by_guard = False
        self._in_time = 0

    @property
    def newest(self) -> Taken | None:
        """The newest sample, answered or not."""
        return self._held[-1] if self._held else None

    def took(self, taken: Taken) -> None:
        """Record a new sample. Its seq is above all earlier ones."""
        self._held.append(taken)

    def deadline_ns(self) -> int | None:
        """Return when the guard takes charge, counted from the oldest unanswered sample."""
        if self.in_charge == "guard":
            return None
        waiting = next((taken for taken in self._held if taken.sample.seq > self._answered_seq), None)
        return None if waiting is None else waiting.taken_ns + self._deadline_ns

    def overdue(self, now_ns: int) -> bool:
        """Return whether the guard has just taken charge: true once, when the deadline has passed."""
        deadline_ns = self.deadline_ns()
        if deadline_ns is None or now_ns < deadline_ns:
            return False
        self.in_charge = "guard"
        self._in_time = 0
        return True

    def judge(self, command: NodeCommand, now_ns: int) -> Taken | Refusal:
        """Return the sample that a command answers, or why it is refused. Refused commands count as answers, too."""
        taken = self.held(command.seq)
        if command.node != self._node:
            return "foreign"
        if command.boot_id != self._boot_id:
            return "other boot"
        if taken is None:
            newest = self.newest
            return "unknown sample" if newest is None or command.seq > newest.sample.seq else "expired"
        self._count_answer(taken, now_ns)
        return taken if command.seq > self._settled_seq else self._out_of_order(command.seq)

    def held(self, seq: int) -> Taken | None:
        """Return the sample with this seq, if it is still held."""
        return next((taken for taken in self._held if taken.sample.seq == seq), None)

    def settle(self, seq: int, *, by_guard: bool) -> None:
        """Record that a sample is decided. Commands for it and for older ones no longer act."""
        assert seq > self._settled_seq, f"sample {seq} settled after {self._settled_seq}"
        self._settled_seq = seq
        self._settled_by_guard = by_guard

    def settled(self, seq: int) -> bool:
        """Return whether this sample or a newer one is decided."""
        return seq <= self._settled_seq

    def _out_of_order(self, seq: int) -> Refusal:
        if self._settled_by_guard:
            return "superseded"
        return "repeated" if seq == self._settled_seq else "older"

    def _count_answer(self, taken: Taken, now_ns: int) -> None:
        seq = taken.sample.seq
        if seq <= self._answered_seq:
            return
        follows = seq == self._answered_seq + 1
        self._answered_seq = seq
        if now_ns - taken.taken_ns > self._deadline_ns:
            self._in_time = 0
            return
        self._in_time = self._in_time + 1 if follows else 1
        if self._in_time >= IN_TIME_TO_HAND_BACK:
            self.in_charge = "stream"
