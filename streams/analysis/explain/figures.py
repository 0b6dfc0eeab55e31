"""Extracts a node's published figures with their arithmetic, and reports stale ones and those of another policy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import UNCOVERED_MS
from slacktide.schemas.units import count
from slacktide.streams.analysis.explain.evidence import Finding
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.batch_resource import batch_because, free_because
from slacktide.streams.decisions.resources.mid_resource import mid_because
from slacktide.streams.decisions.resources.publishing import floor_because
from slacktide.streams.freshness.silence import SILENT_MS
from slacktide.streams.worker.nodes import TWO_BOOTS, UNKNOWN_NODE

UNANSWERED_MS = 3_000
"""Decisions take milliseconds; the guard acts after one second."""
PARTIAL_PCT = 90
"""Below this part of the window, averages cover a shorter time than the policy requires."""
_WORKER = "check that a worker runs (`slacktide stream`) and its lag (`slacktide topics lag`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The allocatable of one resource and its computation."""

    of: str
    """The field of NodeAllocatable, unit in its name."""
    published: int | None
    """None: not published."""
    because: Because | None
    """None: the figure was not computed; see the record's reason."""
    floored: bool
    """It equals the requests of running pods."""
    emptied_by: str
    """The term that reduced the figure to 0, such as ``high_priority_milli``; "": none."""


_FIGURES: tuple[tuple[str, str, Callable[[str, str, Terms], Because]], ...] = (
    ("batch_cpu_milli", "cpu_terms", batch_because),
    ("batch_mem_bytes", "mem_terms", batch_because),
    ("mid_cpu_milli", "mid_cpu_terms", mid_because),
    ("mid_mem_bytes", "mid_mem_terms", mid_because),
    ("free_cpu_milli", "free_cpu_terms", free_because),
    ("free_mem_bytes", "free_mem_terms", free_because),
)


def figures(allocatable: NodeAllocatable) -> list[Figure]:
    """Return up to six figures, in order, without those neither published nor computed."""
    found = []
    for of, field, because_of in _FIGURES:
        published: int | None = getattr(allocatable, of)
        terms: Terms = getattr(allocatable, field)
        if published is None and not terms and not of.startswith("batch"):
            continue
        tier, _, unit = of.split("_")
        because = None
        if terms:
            try:
                because = floor_because(of, terms) if "floor" in terms else because_of(of, unit, terms)
                because.added()
            except KeyError:  # another version wrote the record
                because = Because(of=of, bound="not known here", terms=terms)
        found.append(
            Figure(
                of=of,
                published=published,
                because=because,
                floored=of in allocatable.floored,
                emptied_by="" if because is None else emptied_by(because, f"{tier}_{unit}"),
            )
        )
    return found


def emptied_by(because: Because, result: str) -> str:
    """Return the term that reduced the figure to 0: the largest subtrahend (of equals the last), or the cap.

    "": the figure is above 0, or there was no amount to subtract from.
    """
    terms = because.terms
    if terms.get(result, 1) > 0:
        return ""
    added = sum(terms[part[1:]] for part in because.adds if part[0] == "+")
    taken = {part[1:]: terms[part[1:]] for part in because.adds if part[0] == "-"}
    if added <= 0:
        return ""
    if taken and sum(taken.values()) >= added:
        return max(reversed(taken), key=lambda name: taken[name])
    return next((name for name in terms if name.startswith("cap_")), "")


def freshness_findings(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report figures that are missing, late, or of another policy."""
    reason = log.commands[-1].body.reason if log.commands else ""
    if reason.startswith(TWO_BOOTS):
        advice = "find the second agent, or the other writer of this node's key; the figures return 15 s after it stops"
        yield Finding("agent.two", f"its figures are frozen: {reason}", advice=advice)
    elif reason.startswith(UNKNOWN_NODE):
        advice = "see `slacktide topics tail inventory` for the nodes that exist, and docs/silence.md"
        yield Finding("node.unknown", f"no batch resources are published: {reason}", advice=advice)
    yield from _agent(log, asked_ms)
    yield from _window(log, asked_ms)
    yield from _policy(log)


def _agent(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report a silent agent, what it cannot read, and samples of sufficient age that no worker answered."""
    sample = log.sample
    ages_ms = [one.age_ms(asked_ms) for one in (sample, log.metric) if one is not None]
    if log.metric is not None and not log.metric.body.stale_ms and min(ages_ms) > 2 * SILENT_MS:
        # This is longer than workers need to mark the node stale.
        yield Finding(
            "figures.stand",
            "the workers have not marked the node stale: its figures stay in force, and pods can still be placed on it",
            advice="check that a worker runs; if many nodes become silent at once, all figures are frozen until they "
            "return",
        )
    look = (
        "check that the agent runs on the node and reaches this Kafka; `slacktide doctor` on the node shows what "
        "it lacks"
    )
    if sample is None:
        made_of = "" if log.metric is None else f"; the last figures are from sample seq {log.metric.body.seq}"
        text = f"the agent is silent: the records that were read contain no sample of it{made_of}"
        yield Finding("agent.silent", text, advice=f"{look}; a longer --since reads older records")
    elif sample.age_ms(asked_ms) > SILENT_MS:
        age = _s(sample.age_ms(asked_ms))
        text = f"the agent is silent: its last sample, seq {sample.body.seq}, is {age} old"
        yield Finding("agent.silent", text, advice=look)
    else:
        for one in sample.body.missing:
            text = f"the agent cannot read {one.what}: {one.why}"
            yield Finding("agent.missing", text, advice="run `slacktide doctor` on the node")
    command = log.command
    due = [(one.body.boot_id, one.body.seq) for one in log.samples if one.age_ms(asked_ms) > UNANSWERED_MS]
    if due and (command is None or (command.body.boot_id, command.body.seq) < max(due)):
        answered = "none was answered" if command is None else f"the last answered sample is seq {command.body.seq}"
        yield Finding(
            "worker.silent",
            f"no worker answers: sample seq {max(due)[1]} has been unanswered for {UNANSWERED_MS / 1000:g} s, "
            f"{answered}; the node's guard decides",
            advice=_WORKER,
        )


def _window(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    metric, sample = log.metric, log.sample
    if metric is None:
        if sample is not None:
            yield Finding(
                "window.absent",
                f"no NodeMetric is published, although there are samples; the newest is seq {sample.body.seq}",
                advice="check that a worker runs; if the node's inventory record was removed, figures return with its "
                "next one",
            )
        return
    body = metric.body
    if body.stale_ms:
        yield Finding("window.stale", f"the workers have marked the node stale after {_s(body.stale_ms)} of silence")
    elif (uncovered_ms := log.uncovered_ms(metric, asked_ms)) > UNCOVERED_MS:
        frozen = f"no worker has published or covered them for {_s(uncovered_ms)} (seq {body.seq})"
        yield Finding("window.frozen", f"its figures are frozen: {frozen}", advice=_WORKER)
    if 100 * body.covered_ms < PARTIAL_PCT * body.window_ms:
        text = f"the window covers {_s(body.covered_ms)} of {_s(body.window_ms)} ({count(body.samples, 'sample')})"
        yield Finding("window.partial", text)


def _policy(log: NodeLog) -> Iterator[Finding]:
    if log.policy_refused:
        yield Finding("policy.refused", log.policy_refused)
    if log.policy is None:
        yield Finding(
            "policy.absent",
            "the policy topic is empty: the default policy applies, and it limits nothing",
            advice="the bridge publishes a policy from its ConfigMap; without Kubernetes, run `slacktide publish "
            "--policy FILE`",
        )
        return
    version, sample, metric = log.policy.body.version, log.sample, log.metric
    if sample is not None and sample.body.policy_version != version:
        yield Finding(
            "policy.other",
            f"the agent uses policy {sample.body.policy_version}, but {version} is in force",
            advice="if this lasts longer than a second, see the agent's /ready, /fresh and log: they say why it "
            "rejected the policy",
        )
    if metric is not None and metric.body.policy_version != version:
        text = f"NodeMetric was computed by policy {metric.body.policy_version}, but {version} is in force"
        yield Finding("policy.older-figures", text)


def _s(span_ms: int) -> str:
    return f"{span_ms / 1000:.1f} s"
