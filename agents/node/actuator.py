"""Sets the best-effort limit: writes the intent to the spool, then the kernel, reads back, writes the outcome."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from slacktide.agents.node.kernel import Kernel
from slacktide.agents.node.spool import Spool
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress import capped, looser

THROTTLED = "throttled"


class Actuator:
    """Changes a node's best-effort limit, and reports outcomes of all acts."""

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
        self.decided: Limits | None = None
        self.cap_us: int | None = None
        """Upper limit of the quota; None: the decided quota is set."""
        self._kernel = kernel
        self._spool = spool
        self._mono_ns = mono_ns
        self._dry_run = dry_run
        self._concluded = concluded
        self._raised_ns: int | None = None

    def since_raise_ms(self, now_ns: int) -> int | None:
        """Return the time since this agent last raised the limit; None: never."""
        return None if self._raised_ns is None else (now_ns - self._raised_ns) // 1_000_000

    def exceeds(self, limits: Limits | None) -> bool:
        """Return whether the kernel's limits are tighter than these limits and the cap."""
        wanted = None if limits is None else self._capped(limits)
        return wanted is not None and self.limits is not None and looser(wanted, self.limits)

    def settle_interrupted(self) -> None:
        """Report the result of acts that the last run began and did not finish, as read from the kernel."""
        for intent in self._spool.interrupted():
            if not intent.about_limit:  # an act of the tuner or the evictor
                continue
            after = self._read_back()
            done = after is not None and intent.after is not None and not _differ(after, intent.after)
            reason = "the agent stopped before the result was known; the limit was read at its next start"
            self.conclude(
                msgspec.structs.replace(intent, result="applied" if done else "failed", reason=reason, after=after)
            )

    def perform(
        self,
        limits: Limits | None,
        outcome: NodeOutcome,
        *,
        dated: Callable[[NodeOutcome], NodeOutcome],
        dry_run: bool = False,
    ) -> None:
        """Set limits if they differ from those in force; None: none can be computed, so nothing is changed.

        ``dated`` adds the time to the outcome, again after read-back.
        """
        before, wanted = self.limits, limits if dry_run else self._capped(limits)
        bound = outcome.bound if wanted == limits else THROTTLED
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
                failure = "the kernel reports another value than was written"
            if after is None or looser(after, before):
                self._raised_ns = self._mono_ns()
            result = "failed" if failure else "applied"
            reason = failure or outcome.reason
            self.conclude(dated(msgspec.structs.replace(outcome, result=result, reason=reason, after=after)))

    def intend(self, outcome: NodeOutcome) -> None:
        """Record an act before it happens, with its intended outcome."""
        self._spool.intend(outcome)

    def interrupted(self) -> list[NodeOutcome]:
        """Return the acts that the last run began and did not finish."""
        return self._spool.interrupted()

    def conclude(self, outcome: NodeOutcome) -> None:
        """Write an outcome to the spool and count it."""
        self._spool.conclude(outcome)
        self._concluded(outcome)

    def _capped(self, limits: Limits | None) -> Limits | None:
        if limits is None:
            return None
        self.decided = limits
        return limits if self.cap_us is None else capped(limits, self.cap_us)

    def _write(self, limits: Limits) -> str:
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
