"""Acts on the kernel and reports: intent to the spool, write, read back, outcome to the spool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from slacktide.agents.node.kernel import Kernel
from slacktide.agents.node.spool import Spool
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome, Origin
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.be_limits import capped, looser

THROTTLED = "throttled"
"""The bound of an act that the cap makes tighter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What shall hold, and its outcome's reason."""

    limits: Limits | None
    """None: nothing can be named, so nothing is changed."""
    id: str
    rule: str
    origin: Origin
    reason: str
    bound: str
    terms: Terms


class Actuator:
    """The one place that changes a node's best-effort limit, and reports the outcomes of acts."""

    def __init__(
        self,
        *,
        kernel: Kernel,
        spool: Spool,
        mono_ns: Callable[[], int],
        dry_run: bool,
        concluded: Callable[[NodeOutcome], None],
    ) -> None:
        self.limits: Limits | None = None
        """What the kernel holds, as last read."""
        self.decided: Limits | None = None
        """What was last to hold."""
        self.cap_us: int | None = None
        """Of the quota, however much more is decided; None: what is decided holds."""
        self._kernel = kernel
        self._spool = spool
        self._mono_ns = mono_ns
        self._dry_run = dry_run
        self._concluded = concluded
        self._raised_ns: int | None = None

    def since_raise_ms(self, now_ns: int) -> int | None:
        """Time since the limit was last raised; None: not by this agent."""
        return None if self._raised_ns is None else (now_ns - self._raised_ns) // 1_000_000

    def exceeds(self, limits: Limits | None) -> bool:
        """Whether the kernel holds something tighter than these limits, and than the cap."""
        wanted = None if limits is None else self._capped(limits)
        return wanted is not None and self.limits is not None and looser(wanted, self.limits)

    def settle_interrupted(self) -> None:
        """Conclude what the last run began and did not end: the kernel shows what came of it."""
        for intent in self._spool.interrupted():
            if not intent.about_limit:  # the tuner's, or the evictor's
                continue
            after = self._read_back()
            done = after is not None and intent.after is not None and not _differ(after, intent.after)
            reason = "the agent stopped during the act; read back at its next start"
            self.conclude(
                msgspec.structs.replace(intent, result="applied" if done else "failed", reason=reason, after=after)
            )

    def perform(
        self, act: Act, outcome: NodeOutcome, *, dated: Callable[[NodeOutcome], NodeOutcome], dry_run: bool = False
    ) -> None:
        """Make the act's limits hold, where they differ from what holds.

        Args:
            act: what shall hold.
            outcome: the report as far as it is known before the act.
            dated: puts the time into a report; asked again once the act was read back.
            dry_run: only report it.

        """
        before, wanted = self.limits, act.limits if dry_run else self._capped(act.limits)
        bound = outcome.bound if wanted == act.limits else THROTTLED
        outcome = dated(msgspec.structs.replace(outcome, before=before, after=before, bound=bound))
        if wanted is None or before is None or not _differ(wanted, before):
            self.conclude(outcome)
        elif self._dry_run or dry_run:
            self.conclude(msgspec.structs.replace(outcome, result="dry-run"))
        else:
            self.intend(msgspec.structs.replace(outcome, result="applied", after=wanted))
            failure = self._write(wanted)
            after = self.limits = self._read_back()
            if not failure and (after is None or _differ(after, wanted)):
                failure = "the kernel reads back something else than was written"
            if after is None or looser(after, before):
                self._raised_ns = self._mono_ns()
            result = "failed" if failure else "applied"
            reason = failure or outcome.reason
            self.conclude(dated(msgspec.structs.replace(outcome, result=result, reason=reason, after=after)))

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen, with the outcome that it is meant to have."""
        self._spool.intend(outcome)

    def interrupted(self) -> list[NodeOutcome]:
        """What the last run began and did not end."""
        return self._spool.interrupted()

    def conclude(self, outcome: NodeOutcome) -> None:
        """Hand one outcome to the spool, and to whoever counts them."""
        self._spool.conclude(outcome)
        self._concluded(outcome)

    def _capped(self, limits: Limits | None) -> Limits | None:
        """The tighter of what is decided and the cap."""
        if limits is None:
            return None
        self.decided = limits
        return limits if self.cap_us is None else capped(limits, self.cap_us)

    def _write(self, limits: Limits) -> str:
        """Write; "" when the kernel took it, else why not."""
        try:
            self._kernel.hold(limits)
        except CgroupError as exc:
            return str(exc)
        return ""

    def _read_back(self) -> Limits | None:
        try:
            return self._kernel.limits()
        except CgroupError:
            return None


def _differ(one: Limits, other: Limits) -> bool:
    return looser(one, other) or looser(other, one)
