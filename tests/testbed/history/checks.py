"""All invariants of one history, and their report."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.policy.budget import EvictionBudget
from testbed.history import acts, answers, epochs, evictions, figures, freshness, letters, limits
from testbed.history.records import History
from testbed.history.verdict import Verdict

INVARIANTS = (
    answers.every_sample_answered,
    answers.only_samples_answered,
    answers.answers_agree,
    acts.no_act_twice,
    acts.one_outcome_each,
    acts.kernel_agrees,
    limits.chain_unbroken,
    limits.raises_spaced,
    evictions.within_credit,
    evictions.evicted_once,
    figures.figures_floored,
    freshness.only_silent_are_stale,
    epochs.epochs_monotone,
    letters.only_bad_records_buried,
)


def judge(history: History, budget: EvictionBudget | None = None) -> list[Verdict]:
    """Ask every invariant."""
    found = [invariant(history) for invariant in INVARIANTS]
    return [*found, evictions.within_budget(history, budget)] if budget is not None else found


def report(verdicts: Sequence[Verdict]) -> str:
    """One line per invariant with its counts."""
    return "\n".join(map(str, verdicts))


def broken(verdicts: Sequence[Verdict]) -> list[str]:
    """The invariants that do not hold."""
    return [each.invariant for each in verdicts if each.broken]
