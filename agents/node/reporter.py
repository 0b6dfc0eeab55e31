"""Common fields of one boot's outcomes: node, sample and time."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from slacktide.agents.clock import Clock, EventTime
from slacktide.agents.node.protocol import Taken
from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The cause of an act."""

    taken: Taken
    origin: Origin
    rule: str
    reason: str = ""
    """Why the guard decided; "": it did not."""
    bound: str = ""
    terms: Terms = field(default_factory=dict)


class Reporter:
    """Creates outcomes and sets their time."""

    def __init__(self, *, node: str, boot_id: str, clock: Clock, event_time: EventTime) -> None:
        self.policy_version = ""
        self._node = node
        self._boot_id = boot_id
        self._clock = clock
        self._event_time = event_time

    def id_of(self, taken: Taken, rule: str, target: str) -> str:
        """Return the id of a decision: the same for stream and guard."""
        return command_id(self._node, self._boot_id, taken.sample.seq, rule, target, self.policy_version)

    def begun(self, cause: Cause, target: str, *, id_: str = "") -> NodeOutcome:
        """Return an outcome as known before the act: ``unchanged``, without time. ``id_``: "": the decision's id."""
        return NodeOutcome(
            node=self._node,
            boot_id=self._boot_id,
            seq=cause.taken.sample.seq,
            command_id=id_ or self.id_of(cause.taken, cause.rule, target),
            rule=cause.rule,
            target=target,
            origin=cause.origin,
            result="unchanged",
            reason=cause.reason,
            policy_version=self.policy_version,
            observed_ms=cause.taken.sample.observed_ms,
            acted_ms=0,
            age_ms=0,
            bound=cause.bound,
            terms=cause.terms,
        )

    def dated(self, outcome: NodeOutcome, taken: Taken | None) -> NodeOutcome:
        """Return the outcome with the time now and the sample's age. ``taken`` None: a sample of an earlier run."""
        now_ns = self._clock.mono_ns()
        age_ms = outcome.age_ms if taken is None else (now_ns - taken.taken_ns) // 1_000_000
        return msgspec.structs.replace(outcome, acted_ms=self._event_time.of(now_ns), age_ms=age_ms)

    def refused(self, command: NodeCommand, cause: str, rule: str, target: str) -> NodeOutcome:
        """Return the outcome of a refused command."""
        return NodeOutcome(
            node=self._node,
            boot_id=self._boot_id,
            seq=command.seq,
            command_id=command.hold[0].id if command.hold else command.id,
            rule=rule,
            target=target,
            origin="stream",
            result="refused",
            reason=cause,
            policy_version=command.policy_version,
            observed_ms=command.observed_ms,
            acted_ms=self._event_time.of(self._clock.mono_ns()),
            age_ms=0,
        )
