"""Reports the decider of a node, and whether the agent carried out the commands."""

from collections.abc import Iterator, Sequence

from slacktide.schemas.command import Evict, Hold, NodeCommand, Setting
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.analysis.explain.evidence import Finding, Logged, newest
from slacktide.streams.analysis.explain.node_log import NodeLog, order

DONE_MS = 3_000
"""An agent acts and reports within milliseconds."""
LATELY_MS = 12_000
"""Older commands and outcomes do not show the present state. Agents that are silent for 10 s are reported as such."""
SUSPEND = "suspend"
"""The rule of a suspended node's outcomes (agents/node/agent.py)."""
_DONE = frozenset({"applied", "unchanged"})
_DRY_RUN = "check whether the agent runs with --dry-run, or the policy has a dryRun for this"


def carried_out_findings(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report skipped samples, the decider, and parts of the newest command without an outcome."""
    command, last = log.command, last_limit(log, asked_ms)
    if command is not None and command.body.answer == "skipped":
        yield Finding(
            "command.skipped",
            f"the stream cannot decide: {command.body.reason} (seq {command.body.seq}); the node's guard decides "
            "instead",
        )
    if last is not None and last.body.rule == SUSPEND:
        yield Finding(
            "node.suspended",
            f"{last.body.reason}, {last.age_ms(asked_ms) / 1000:.1f} s ago (seq {last.body.seq}): limits are "
            "lifted, no pod is evicted, and the stream's decisions are not carried out",
            advice="to resume, remove the annotation slacktide.io/suspend, the suspend file or the policy's key "
            "(docs/suspend.md)",
        )
        return
    yield from _guard(log, asked_ms)
    if last is not None and last.body.result == "failed":
        yield Finding(
            "limit.failed",
            f"the limit of best-effort pods could not be set: {last.body.reason or 'no reason was recorded'}",
            advice="run `slacktide doctor` on the node",
        )
    elif last is not None and last.body.result == "dry-run":
        text = "dry run: limits of best-effort pods are computed but not applied"
        yield Finding("limit.dry-run", text, advice=_DRY_RUN)
    setting = newest((one for one in log.commands if one.body.answer == "set"), order)
    if setting is not None and setting.age_ms(asked_ms) <= LATELY_MS:
        yield from _undone(setting, log.outcomes, setting.age_ms(asked_ms))


def last_limit(log: NodeLog, asked_ms: int) -> Logged[NodeOutcome] | None:
    """Return the last outcome of the limit of best-effort pods, without refusals; None: none lately."""
    limits = (one for one in reversed(log.outcomes) if one.body.about_limit and one.body.result != "refused")
    return next((one for one in limits if one.age_ms(asked_ms) <= LATELY_MS), None)


def _guard(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    limits = [one for one in log.outcomes if one.body.about_limit and one.body.origin != "agent"]
    limits = [one for one in limits if one.body.result != "refused"]
    last = limits[-1] if limits else None
    if last is None or last.body.origin != "guard" or last.age_ms(asked_ms) > LATELY_MS:
        return
    own = [one for one in limits if one.body.origin == "guard"]
    text = f"the node's guard decided last, {last.age_ms(asked_ms) / 1000:.1f} s ago (seq {last.body.seq})"
    yield Finding(
        "guard.in-charge",
        f"{text}: {last.body.reason or 'no reason is given'}; {len(own)} of the last {len(limits)} outcomes; it "
        "uses the same rules, and the stream takes over after two answers in time",
    )


def _undone(setting: Logged[NodeCommand], outcomes: Sequence[Logged[NodeOutcome]], age_ms: int) -> Iterator[Finding]:
    """Report parts without an outcome, and parts that were not done.

    Limits that failed, and dry runs of them, are reported by themselves.
    """
    command = setting.body
    by_id = {one.body.command_id: one.body for one in outcomes}
    by_rule = {
        one.body.rule: one.body
        for one in outcomes
        if (one.body.boot_id, one.body.seq) == (command.boot_id, command.seq)
    }
    parts: list[Hold | Evict | Setting] = [*command.hold, *command.evict, *command.settings]
    for part in parts:
        outcome = by_id.get(part.id) or by_rule.get(part.rule)
        if outcome is None:
            if age_ms > DONE_MS:
                yield Finding(
                    "command.unheard",
                    f"no outcome was received for {what(part)} (seq {command.seq}, {age_ms / 1000:.1f} s ago)",
                    advice="see the agent's log: it was not running, or its outcomes are still in its spool",
                )
        elif outcome.result not in _DONE and not (isinstance(part, Hold) and outcome.result in {"failed", "dry-run"}):
            dry_run = outcome.result == "dry-run"
            reason = outcome.reason or outcome.bound or "no reason was recorded"
            yield Finding(
                "command.dry-run" if dry_run else "command.not-carried-out",
                f"{what(part)} (seq {command.seq}) was not carried out: {outcome.result}, {reason}",
                advice=_DRY_RUN if dry_run else "",
            )


def what(part: Hold | Evict | Setting) -> str:
    """Describe what a part of a command sets."""
    if isinstance(part, Evict):
        return f"the eviction of {part.namespace}/{part.name} by {part.rule}"
    if isinstance(part, Setting):
        return f"{part.knob} of {part.group} by {part.rule}"
    return f"the limit by {part.rule}"
