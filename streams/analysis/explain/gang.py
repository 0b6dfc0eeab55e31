"""Reports why a pod waits for its gang, or which node its gang's plan holds for it."""

from collections.abc import Iterable, Iterator

from slacktide.schemas.gang import GangPlan
from slacktide.streams.analysis.explain.evidence import Finding, Logged


def last_of_gang(plans: Iterable[Logged[GangPlan]], namespace: str, name: str) -> Logged[GangPlan] | None:
    """Return the last record of a group if it names the pod."""
    last = {one.body.group: one for one in plans if f",{namespace}/" in f",{one.body.group}"}
    mine = [one for one in last.values() if name in one.body.waiting or any(name == at.name for at in one.body.places)]
    return max(mine, key=lambda one: one.place.offset, default=None)


def gang_findings(last: Logged[GangPlan] | None, name: str, asked_ms: int) -> Iterator[Finding]:
    """Report the plan that holds a node for the pod, or why there is none."""
    if last is None:
        return
    plan, ago_s = last.body, (asked_ms - last.body.decided_ms) / 1_000
    held = next((one.node for one in plan.places if one.name == name), "")
    if held:
        yield Finding(
            "pod.planned", f"{ago_s:.0f} s ago its gang {plan.group} got places for all: node {held} is held for it"
        )
    else:
        yield Finding(
            "pending.gang",
            f"it waits for its gang {plan.group} ({ago_s:.0f} s ago): {plan.reason}: {plan.why}",
            advice="docs/gangs.md has the reasons",
        )
