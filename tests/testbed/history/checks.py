"""All invariants of one history, and their report."""

from collections.abc import Sequence

from slacktide.schemas.policy.strategies import EvictionBudget
from testbed.history import acts, answers, evictions, limits, published
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
    published.figures_floored,
    published.only_silent_are_stale,
    published.epochs_monotone,
    published.only_bad_records_buried,
)


def judge(history: History, budget: EvictionBudget | None = None) -> list[Verdict]:
    found = [invariant(history) for invariant in INVARIANTS]
    return [*found, evictions.within_budget(history, budget)] if budget is not None else found


def report(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(map(str, verdicts))


def broken(verdicts: Sequence[Verdict]) -> list[str]:
    return [each.invariant for each in verdicts if each.broken]
