"""The policy of an agent: consumed from Kafka, and saved for a start without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from slacktide.agents.metrics import AgentMetrics
from slacktide.agents.node.state import State
from slacktide.schemas import policy as policies
from slacktide.schemas.errors import BadMessageError
from slacktide.streams.records import Record, place_of

log = logging.getLogger(__name__)


class Policies:
    """One agent's view of the policy topic."""

    def __init__(self, state: State, metrics: AgentMetrics) -> None:
        self._state = state
        self._metrics = metrics
        self._in_force = policies.InForce(state.policy() or policies.DEFAULT)

    @property
    def policy(self) -> policies.Policy:
        """The policy in force: the last valid one of the highest epoch."""
        return self._in_force.policy

    @property
    def refused(self) -> str:
        """Why the newest record is refused; "": it is in force."""
        return self._in_force.refused

    @property
    def diverges(self) -> str:
        """Why this agent may use another policy than the others; "": it does not."""
        return self._in_force.refused if self._in_force.by_epoch else ""

    def read(self, records: Iterable[Record], to_dead_letter: Callable[[Record, str], None]) -> bool:
        """Read records of the topic, in order. Return whether the version in force changed."""
        before, refused = self.policy, self.refused
        for record in records:
            try:
                taken = self._in_force.take(record.key, record.value, place_of(record))
            except BadMessageError as exc:
                to_dead_letter(record, str(exc))
                continue
            if taken:
                self._metrics.policy_published(self.policy.published_ms)
        self._metrics.policy_refused(refused=bool(self.refused))
        if self.refused and self.refused != refused:
            log.error("a policy is rejected", extra={"why": self.refused})
        self._state.keep_policy(self.policy)
        if self.policy.version == before.version:
            return False
        log.info("policy in force", extra={"version": self.policy.version, "before": before.version})
        return True
