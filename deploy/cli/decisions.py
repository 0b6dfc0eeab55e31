"""Formats log lines about a node's first decisions after the stack starts."""

from __future__ import annotations

from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.cpu_list import cpu_ranges

DONE = frozenset({"applied", "dry-run"})


class FirstDecisions:
    """Finds the first outcome with a change, and the first one decided by the stream."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._acted = False
        self._streamed = False

    @property
    def complete(self) -> bool:
        """Return whether both first decisions were found."""
        return self._acted and self._streamed

    def line_of(self, outcome: NodeOutcome) -> str:
        """Return the line about an outcome of the limit; "": none."""
        if not outcome.about_limit:
            return ""
        acted = not self._acted and outcome.result in DONE and outcome.origin != "agent"
        streamed = not self._streamed and outcome.origin == "stream" and outcome.result in DONE | {"unchanged"}
        self._acted |= acted
        self._streamed |= streamed
        after = f"{max(0, outcome.acted_ms - self._started_ms) / 1000:.1f} s after the start"
        if acted:
            return f"first {outcome.result} decision {after}, by the {outcome.origin}: {_change(outcome)}"
        if streamed:
            held = outcome.after
            shown = _limit(held, cpus=not held or held.be_cfs_quota_us is None)
            return f"first decision by the stream {after}: limit unchanged: {shown} ({outcome.bound})"
        return ""


def _change(outcome: NodeOutcome) -> str:
    if outcome.result == "dry-run":
        return f"{_limit(outcome.before)} would change ({outcome.bound})"
    before, after = outcome.before, outcome.after
    cpus = before is not None and after is not None and before.be_cpuset != after.be_cpuset
    return f"{_limit(before, cpus=cpus)} -> {_limit(after, cpus=cpus)} ({outcome.bound})"


def _limit(limits: Limits | None, *, cpus: bool = False) -> str:
    """Return a limit in millicores, with the CPUs of a CPU set."""
    if limits is None:
        return "an unknown limit"
    quota = ""
    if limits.be_cfs_quota_us is not None:
        quota = f"{1000 * limits.be_cfs_quota_us // limits.be_cfs_period_us} millicores"
    if cpus and limits.be_cpuset:
        return f"{quota} on CPUs {cpu_ranges(limits.be_cpuset)}".lstrip().removeprefix("on ")
    return quota or "no limit"
