"""How many pods this boot of the node may still evict, by the governor's leases. Pure: its callers read the leases."""

from __future__ import annotations

from slacktide.schemas.bounds import COUNT_MAX
from slacktide.schemas.credit import NO_CREDIT, EvictionCredit

__all__ = ["NO_CREDIT", "CreditAccount"]

LAST = (COUNT_MAX, COUNT_MAX)
"""Nothing can be higher: should it ever be written, the order of arrival decides from there on."""


class CreditAccount:
    """The lease in force, and what was spent of it. Whoever evicts asks ``ready`` for each pod, then spends."""

    def __init__(self, boot_id: str) -> None:
        self.spent = 0
        """Evictions since the agent's start."""
        self.epoch = 0
        """The highest epoch of a governor that was read."""
        self._boot_id = boot_id
        self._reserved = 0
        self._newest = (0, -1)
        self._granted = 0
        self._spared: frozenset[str] = frozenset()
        self._until_ns = 0
        self._away_since_ns: int | None = None
        self._outlasted = False

    def receive(self, credit: EvictionCredit, since_ns: int) -> None:
        """Take a lease over, if it is newer than all before it.

        Args:
            credit: of this node, of any of its boots.
            since_ns: the last monotonic instant at which it had not come yet: its time counts from there, so that
                a record which was long on its way is good for no longer than its writer believes.

        """
        if (credit.epoch, credit.number) <= self._newest != LAST:
            return
        self._newest = (credit.epoch, credit.number)
        self.epoch = credit.epoch
        if credit.boot_id == self._boot_id:
            # A bad record may report more evictions to the governor than there were; they give no credit.
            self._granted = min(credit.granted, self.spent + credit.granted - credit.spent)
            self._spared = frozenset(credit.spared_namespaces)
            self._until_ns = since_ns + credit.ttl_ms * 1_000_000
            self._outlasted = False

    def log_is(self, *, away: bool, now_ns: int) -> None:
        """Whether Kafka can be used, at each look: what cannot be renewed now may outlast its time."""
        if not away:
            self._away_since_ns = None
        elif self._away_since_ns is None:
            self._away_since_ns = now_ns

    def ready(self, now_ns: int, namespace: str) -> bool:
        """Whether one more pod of the namespace may go now."""
        if self.spent + self._reserved >= self._granted or namespace in self._spared:
            return False
        return now_ns < self._until_ns or self._outlasts

    def spend(self, now_ns: int) -> None:
        """A pod goes; call this before it is asked to go."""
        self.spent += 1
        self._outlasted = self._outlasted or now_ns >= self._until_ns

    def reserve(self, now_ns: int) -> None:
        """A pod may go, which somebody else decides: until then its credit is held, and not reported as spent."""
        self._reserved += 1
        self._outlasted = self._outlasted or now_ns >= self._until_ns

    def settle(self, *, goes: bool) -> None:
        """The answer is known: whether a pod goes for which credit was reserved; one that may have gone goes."""
        self._reserved -= 1
        self.spent += goes

    @property
    def _outlasts(self) -> bool:
        """A lease that was good when Kafka became unavailable stays good for one eviction until it is back."""
        return self._away_since_ns is not None and self._away_since_ns < self._until_ns and not self._outlasted
