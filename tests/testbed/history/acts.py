"""No act happens twice, each has one outcome, and what the kernel showed is what outcomes report."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, islice, takewhile
from math import inf

from slacktide.schemas.outcome import NodeOutcome
from testbed.history.records import DONE, History, Shown
from testbed.history.verdict import Verdict, verdict

LIFTED = "lifted"
WRITTEN_MS = 150
"""Within so much of an act a look may see the limit before it or after it."""


def act_of(outcome: NodeOutcome) -> tuple[object, ...]:
    """Which rule acted on what, for which sample, and which step of it.

    An evicted pod is asked to go, then gone. While none may go the group is throttled, then that is lifted.
    """
    step = outcome.bound if outcome.pod is not None or outcome.bound == LIFTED else ""
    return outcome.boot_id, outcome.seq, outcome.rule, outcome.target, outcome.knob and outcome.knob.knob, step


def done_twice(outcomes: Iterable[NodeOutcome]) -> list[tuple[object, ...]]:
    acts = Counter(act_of(each) for each in outcomes if each.result in DONE)
    return [act for act, times in acts.items() if times > 1]


def no_act_twice(history: History) -> Verdict:
    """Each rule acts once per sample and target, whoever decided it."""
    checked, broken = 0, list[str]()
    for node, outcomes in history.outcomes.items():
        checked += sum(each.result in DONE for each in outcomes)
        broken += [f"{node}: {act}" for act in done_twice(outcomes)]
    return verdict("no act twice", checked, broken)


def one_outcome_each(history: History) -> Verdict:
    """A command id is concluded once for each target, and no outcome was dropped."""
    checked, broken = 0, list[str]()
    for node, outcomes in history.outcomes.items():
        ends = Counter((each.boot_id, each.command_id, act_of(each)) for each in outcomes if each.result in DONE)
        checked += len(ends)
        broken += [f"{node}: {end}" for end, times in ends.items() if times > 1]
        broken += [f"{node}: outcomes were dropped: {each.count}" for each in outcomes if each.result == "gap"]
    return verdict("one outcome each", checked, broken)


def kernel_agrees(history: History) -> Verdict:
    """Each limit that the kernel showed was reported as applied, in that order, and each report was true."""
    checked, broken = 0, list[str]()
    for node, shown in history.kernels.items():
        applied = [each for each in history.outcomes.get(node, []) if each.result == "applied" and each.about_limit]
        changes = [next(looks).quota_us for _, looks in groupby(shown, lambda look: look.quota_us)]
        checked += len(changes) + len(applied)
        broken += [f"{node}: {why}" for why in (*_unreported(changes, applied), *_untrue(shown, applied))]
    return verdict("kernels agree with outcomes", checked, broken)


def _unreported(changes: Sequence[int | None], applied: Sequence[NodeOutcome]) -> list[str]:
    """Changes in the kernel that no outcome explains in their place. The first one was there before."""
    afters = iter([each.after.be_cfs_quota_us for each in applied if each.after is not None])
    return [
        f"change {number} of the kernel, to {quota_us}, is in no outcome in this place"
        for number, quota_us in enumerate(changes[1:], 1)
        if not any(quota_us == after for after in afters)
    ][:1]


def _untrue(shown: Sequence[Shown], applied: Sequence[NodeOutcome]) -> list[str]:
    """Reports of limits beside which a look at the kernel, before the next act began, saw another one."""
    broken = []
    for index, each in enumerate(applied):
        if each.after is None:
            continue
        later = applied[index + 1] if index + 1 < len(applied) else None
        until_ms = inf if later is None else later.acted_ms - later.age_ms - WRITTEN_MS
        first = bisect_left(shown, each.acted_ms + WRITTEN_MS, key=lambda look: look.at_ms)
        looks = takewhile(lambda look, until_ms=until_ms: look.until_ms < until_ms, islice(shown, first, None))
        wrong = next((look for look in looks if look.quota_us != each.after.be_cfs_quota_us), None)
        if wrong is not None:
            following = "nothing" if later is None else f"{later.before} to {later.after} at {later.acted_ms}"
            what = f"{each.boot_id}/{each.seq} reported {each.after} at {each.acted_ms}"
            broken.append(f"{what} (then {following}), the kernel showed {wrong}")
    return broken
