"""Limits form a chain: each act found what the one before it left, and raises are spaced."""

from collections.abc import Sequence
from itertools import pairwise

from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress import RAISE_SPACING_MS, RULE, looser
from testbed.history.records import DONE, History
from testbed.history.verdict import Verdict, verdict

ROUNDED_MS = 2
"""Times of acts are whole milliseconds, and so are their differences to samples."""
FREE = frozenset({"disabled", "restored"})
"""A policy that suppresses nothing, and an agent that leaves, lift the limit at once."""


def about_limit(outcomes: Sequence[NodeOutcome]) -> list[NodeOutcome]:
    """Acts on the best-effort limit, in their order."""
    return [each for each in outcomes if each.about_limit and each.result in DONE]


def torn(outcomes: Sequence[NodeOutcome]) -> list[tuple[NodeOutcome, NodeOutcome]]:
    """Neighbours between which the limit changed and nobody reported it."""
    return [(one, other) for one, other in pairwise(about_limit(outcomes)) if not _follow(one.after, other.before)]


def chain_unbroken(history: History) -> Verdict:
    """Over restarts and the guard's acts, too."""
    checked, broken = 0, list[str]()
    for node, outcomes in history.outcomes.items():
        checked += len(about_limit(outcomes))
        broken += [
            f"{node}: {one.boot_id}/{one.seq} left {one.after}, {other.boot_id}/{other.seq} found {other.before}"
            for one, other in torn(outcomes)
        ]
    return verdict("limits' chain unbroken", checked, broken)


def raises_spaced(history: History) -> Verdict:
    """No raise within 900 ms of the last one of the same boot, whoever made it."""
    checked, broken = 0, list[str]()
    for node, outcomes in history.outcomes.items():
        raises = [each for each in outcomes if _raises(each)]
        checked += len(raises)
        for one, other in pairwise(raises):
            if one.boot_id != other.boot_id or other.bound in FREE or other.origin == "agent":
                continue
            since_ms = other.acted_ms - one.acted_ms
            if -ROUNDED_MS <= since_ms < RAISE_SPACING_MS - ROUNDED_MS:
                broken.append(f"{node}: {other.boot_id}/{other.seq} raised {since_ms} ms after {one.seq}")
    return verdict("raises are spaced", checked, broken)


def _raises(outcome: NodeOutcome) -> bool:
    if outcome.result != "applied" or outcome.rule != RULE or outcome.before is None or outcome.after is None:
        return False
    return looser(outcome.after, outcome.before)


def _follow(after: Limits | None, before: Limits | None) -> bool:
    """None: the kernel could not be read."""
    return after is None or before is None or after.be_cfs_quota_us == before.be_cfs_quota_us
