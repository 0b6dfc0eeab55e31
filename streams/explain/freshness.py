"""Reports figures of a node that are stale, or that do not follow the policy in force."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.schemas.metric import UNCOVERED_MS
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node_log import NodeLog
from slacktide.streams.freshness.silence import REPUBLISH_MS, SILENT_MS
from slacktide.streams.worker.boots import TWO_BOOTS
from slacktide.streams.worker.nodes import UNKNOWN_NODE

UNANSWERED_MS = 3_000
"""Decisions take milliseconds; the guard acts after one second."""
BEHIND_MS = 2 * REPUBLISH_MS
"""Unchanged figures are republished, or covered by heartbeats."""
PARTIAL_PCT = 90
"""Below this part of the window, averages cover a shorter time than the policy requires."""


def freshness_findings(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report figures that are missing, late, or of another policy."""
    yield from _skipped(log)
    yield from _agent(log, asked_ms)
    yield from _worker(log, asked_ms)
    yield from _window(log, asked_ms)
    yield from _policy(log)


def _skipped(log: NodeLog) -> Iterator[Finding]:
    """Report by the last command that the node is unknown, or that two agents use its name."""
    if not log.commands:
        return
    reason = log.commands[-1].body.reason
    if reason.startswith(TWO_BOOTS):
        advice = "find the second agent, or the other writer of this node's key; the figures return 15 s after it stops"
        yield Finding(name="agent.two", severity="problem", text=f"its figures are frozen: {reason}", advice=advice)
    elif reason.startswith(UNKNOWN_NODE):
        advice = "`slacktide topics tail inventory` shows the nodes that exist; see docs/silence.md"
        yield Finding(
            name="node.unknown", severity="problem", text=f"no batch resources are published: {reason}", advice=advice
        )


def _agent(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    if _stands(log, asked_ms):
        text = (
            "the workers have not marked the node stale: its figures stay in force, and pods can still be placed on it"
        )
        advice = (
            "check that a worker runs; if many nodes become silent at once, all figures are frozen until they return"
        )
        yield Finding(name="figures.stand", severity="warning", text=text, advice=advice)
    look = (
        "check that the agent runs on the node and reaches this Kafka; `slacktide doctor` on the node shows what "
        "it lacks"
    )
    sample = log.sample
    if sample is None:
        made_of = "" if log.metric is None else f"; the last figures are from sample seq {log.metric.body.seq}"
        yield Finding(
            name="agent.silent",
            severity="problem",
            text=f"the agent is silent: the records that were read contain no sample of it{made_of}",
            advice=f"{look}; a longer --since reads older records",
        )
    elif sample.age_ms(asked_ms) > SILENT_MS:
        yield Finding(
            name="agent.silent",
            severity="problem",
            text=f"the agent is silent: its last sample, seq {sample.body.seq}, is {_s(sample.age_ms(asked_ms))} old",
            advice=look,
        )
    else:
        for one in sample.body.missing:
            text = f"the agent cannot read {one.what}: {one.why}"
            yield Finding(
                name="agent.missing", severity="warning", text=text, advice="run `slacktide doctor` on the node"
            )


def _stands(log: NodeLog, asked_ms: int) -> bool:
    """Return whether the node has been silent for longer than workers need to publish that."""
    if log.metric is None or log.metric.body.stale_ms:
        return False
    ages_ms = [one.age_ms(asked_ms) for one in (log.sample, log.metric) if one is not None]
    return min(ages_ms) > 2 * SILENT_MS


def _worker(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report that the newest sample of sufficient age was not answered."""
    due = [one for one in log.samples if one.age_ms(asked_ms) > UNANSWERED_MS]
    if not due:
        return
    last = max((one.body.boot_id, one.body.seq) for one in due)
    command = log.command
    if command is not None and (command.body.boot_id, command.body.seq) >= last:
        return
    answered = "none was answered" if command is None else f"the last answered sample is seq {command.body.seq}"
    yield Finding(
        name="worker.silent",
        severity="problem",
        text=f"no worker answers: sample seq {last[1]} has been unanswered for {UNANSWERED_MS / 1000:g} s, "
        f"{answered}; the node's guard decides",
        advice="check that a worker runs (`slacktide stream`) and its lag (`slacktide topics lag`)",
    )


def _window(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    metric, sample = log.metric, log.sample
    if metric is None:
        if sample is not None:
            text = f"no NodeMetric is published, although there are samples; the newest is seq {sample.body.seq}"
            yield Finding(
                name="window.absent",
                severity="problem",
                text=text,
                advice="check that a worker runs; if the node's inventory record was removed, figures return with its "
                "next one",
            )
        return
    body = metric.body
    if body.stale_ms:
        text = f"the workers have marked the node stale after {_s(body.stale_ms)} of silence"
        yield Finding(name="window.stale", severity="problem", text=text)
    behind_ms = 0 if sample is None else sample.body.observed_ms - body.observed_ms
    if behind_ms > BEHIND_MS and log.uncovered_ms(metric, asked_ms) > UNCOVERED_MS:
        text = f"NodeMetric is {_s(behind_ms)} older than the newest sample (seq {body.seq})"
        advice = "the worker lags (`slacktide topics lag`), or no longer reads this node's partition"
        yield Finding(name="window.behind", severity="warning", text=text, advice=advice)
    if 100 * body.covered_ms < PARTIAL_PCT * body.window_ms:
        text = f"the window covers {_s(body.covered_ms)} of {_s(body.window_ms)} ({body.samples} samples)"
        yield Finding(name="window.partial", severity="note", text=text)


def _policy(log: NodeLog) -> Iterator[Finding]:
    sample = log.sample
    if log.policy_refused:
        yield Finding(name="policy.refused", severity="problem", text=log.policy_refused)
    if log.policy is None:
        text = "the policy topic is empty: the default policy applies, and it limits nothing"
        advice = (
            "the bridge publishes a policy from its ConfigMap; without Kubernetes, run `slacktide publish --policy "
            "FILE`"
        )
        yield Finding(name="policy.absent", severity="problem", text=text, advice=advice)
        return
    version = log.policy.body.version
    if sample is not None and sample.body.policy_version != version:
        text = f"the agent uses policy {sample.body.policy_version}, but {version} is in force"
        advice = (
            "a new policy takes a second; if it takes longer, the agent's /ready, /fresh and log show why it "
            "rejected it"
        )
        yield Finding(name="policy.other", severity="problem", text=text, advice=advice)
    metric = log.metric
    if metric is not None and metric.body.policy_version != version:
        text = f"NodeMetric was computed by policy {metric.body.policy_version}, but {version} is in force"
        yield Finding(name="policy.older-figures", severity="warning", text=text)


def _s(span_ms: int) -> str:
    return f"{span_ms / 1000:.1f} s"
