"""Explains a node's figures and limits by its chain of records, and gives one row for each of many nodes."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.sample import Limits
from slacktide.streams.analysis.explain.carried_out import LATELY_MS, carried_out_findings, last_limit
from slacktide.streams.analysis.explain.cores import CpuGroup, cpu_groups
from slacktide.streams.analysis.explain.evidence import (
    WORST_FIRST,
    Finding,
    Logged,
    Place,
    Severity,
    ignored_node_findings,
    newest,
    worst_first,
)
from slacktide.streams.analysis.explain.figures import Figure, figures, freshness_findings
from slacktide.streams.analysis.explain.held import (
    learned_cap_findings,
    pressure_findings,
    tier_findings,
    tier_held_findings,
    unheld_findings,
)
from slacktide.streams.analysis.explain.node_log import NodeLog, order
from slacktide.streams.analysis.explain.offered import mid_findings, offered_findings
from slacktide.streams.analysis.explain.placement import left_of
from slacktide.streams.analysis.explain.reclaimed import node_reclaimed_findings
from slacktide.streams.decisions.suppress.cpu_suppress import measured

OUTCOMES_SHOWN = 10
NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of a record, by the record's fields."""

    what: str
    """sample, pods, facts, inventory, forecast or policy."""
    name: str
    """The sample's boot and seq, a revision, or a policy version."""
    place: Place | None
    """The record's position; None: not among the records read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the chain."""

    name: str
    """sample, window, allocatable, command, set (the newest command with a setting) or outcome."""
    place: Place
    age_ms: int
    """The age by Kafka's clock."""
    inputs: list[Input]
    record: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """The chain and its findings."""

    node: str
    asked_ms: int
    policy_version: str
    """The policy in force; "": none."""
    policy_place: Place | None
    steps: list[Step]
    figures: list[Figure]
    findings: list[Finding]
    cpus: list[CpuGroup]
    """What each CPU is for; empty: its topology is unknown."""


def explain_node(log: NodeLog, asked_ms: int) -> NodeExplanation:
    """Explain the node's chain of records. ``asked_ms``: now, by the clock of record timestamps."""
    return NodeExplanation(
        node=log.node,
        asked_ms=asked_ms,
        policy_version="" if log.policy is None else log.policy.body.version,
        policy_place=None if log.policy is None else log.policy.place,
        steps=list(_steps(log, asked_ms)),
        figures=_figures(log),
        findings=node_findings(log, asked_ms),
        cpus=cpu_groups(log),
    )


def _figures(log: NodeLog) -> list[Figure]:
    return [] if log.allocatable is None else figures(log.allocatable.body)


@dataclass(slots=True)
class Lasting:
    """What holds of a node while its policy, facts, pods and figures stay the same, whatever the time is."""

    _inputs: tuple[object, ...] = ()
    _found: Sequence[Finding] = ()

    def of(self, log: NodeLog) -> Sequence[Finding]:
        """Return the findings; they are computed again only after a change."""
        inputs = (log.policy, log.facts, log.pods, log.metric, log.allocatable, log.forecast)
        if not self._inputs or any(one is not other for one, other in zip(inputs, self._inputs, strict=True)):
            self._inputs = inputs
            self._found = [
                *offered_findings(log, _figures(log)),
                *mid_findings(log),
                *exclusive_findings(log),
                *tier_findings(log.pods),
                *learned_cap_findings(log),
                *ignored_node_findings(log.facts),
            ]
        return self._found


def node_findings(log: NodeLog, asked_ms: int, lasting: Lasting | None = None) -> list[Finding]:
    """Return what holds of a node, the worst first: for ``explain``, ``nodes`` and the console.

    ``log`` has at least the records of the last ``LATELY_MS``, and the newest pod list. ``lasting``: of the node, if it
    is asked for again and again.
    """
    return worst_first(
        [
            *unproven_findings(log, asked_ms),
            *freshness_findings(log, asked_ms),
            *(lasting or Lasting()).of(log),
            *carried_out_findings(log, asked_ms),
            *tier_held_findings(log),
            *pressure_findings(log),
            *node_reclaimed_findings(log, asked_ms),
            *unheld_findings(log),
        ]
    )


def _steps(log: NodeLog, asked_ms: int) -> Iterator[Step]:
    samples = [(one.body, one.place) for one in log.samples]
    inventory = {} if log.inventory is None else {log.inventory.body.revision: log.inventory.place}
    facts = {body.facts_revision: place for body, place in samples if body.facts is not None}
    places: dict[str, dict[str, Place]] = {
        "sample": {_sample_name(body): place for body, place in samples},
        "pods": {body.pods_revision: place for body, place in samples if body.pods is not None},
        "facts": inventory | facts,
        "inventory": inventory,
        "forecast": {} if log.forecast is None else {log.forecast.body.revision: log.forecast.place},
        "policy": {} if log.policy is None else {log.policy.body.version: log.policy.place},
    }
    setting = newest((one for one in log.commands if one.body.answer == "set"), order)
    # Of the outcomes without a change only the last, and the newest first.
    changed = [one for one in log.outcomes[:-1] if one.body.result != "unchanged"]
    outcomes = [*reversed(log.outcomes[-1:]), *reversed(changed)][:OUTCOMES_SHOWN]
    chain: list[tuple[str, Logged[Any] | None]] = [
        ("sample", log.sample),
        ("window", log.metric),
        ("allocatable", log.allocatable),
        ("command", log.command),
        ("set", None if setting is log.command else setting),
        *(("outcome", one) for one in outcomes),
    ]
    for name, one in chain:
        if one is not None:
            inputs = [
                Input(what=what, name=of, place=places[what].get(of)) for what, of in _inputs(one.body) if what != name
            ]
            yield Step(name=name, place=one.place, age_ms=one.age_ms(asked_ms), inputs=inputs, record=one.body)


def _inputs(body: Any) -> Iterator[tuple[str, str]]:
    """Yield kind and name of a record's inputs, as far as its fields name them."""
    yield "sample", _sample_name(body)
    for what in ("pods", "facts", "inventory", "forecast"):
        name = getattr(body, f"{what}_revision", None)
        if name or (name is not None and what in {"pods", "facts"}):
            yield what, name
    yield "policy", body.policy_version


def _sample_name(body: Any) -> str:
    return f"{body.boot_id}/{body.seq}"


def exclusive_findings(log: NodeLog) -> Iterator[Finding]:
    """Report the exclusive CPUs and their pods in one finding."""
    owners = [pod for pod in log.pods if pod.exclusive_cpus and pod.phase not in ENDED_PHASES]
    if owners:
        named = [f"{one.namespace}/{one.name} has {one.exclusive_cpus}" for one in owners[:NAMED_MAX]]
        more = f" and {len(owners) - NAMED_MAX} more" if len(owners) > NAMED_MAX else ""
        yield Finding(
            "cpus.exclusive",
            f"exclusive CPUs: {', '.join(named)}{more}; best-effort pods cannot use them, even when they are idle",
        )


def unproven_findings(log: NodeLog, asked_ms: int) -> Iterator[Finding]:
    """Report rejected samples with the node's name, and the reason."""
    lately = [one.body.proof for one in log.refused if one.age_ms(asked_ms) <= LATELY_MS]
    if not lately:
        return
    verdicts = Counter(lately)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    if any(one.age_ms(asked_ms) <= LATELY_MS for one in log.commands):
        yield Finding(
            "agent.forged",
            f"some samples with the node's name were rejected, because their signature is not valid: {listed}",
            advice="find the other writer of the node's name by its records: `slacktide dead-letter list`; see "
            "docs/node-proof.md",
        )
    else:
        yield Finding(
            "agent.unproven",
            f"all samples of the node were rejected, because their signature is not valid: {listed}; its guard decides",
            advice="see the agent's log: it cannot enrol at the bridge; docs/node-proof.md explains enrolment",
        )


Sort = Literal["problem", "name", "used", "offered", "free", "age"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node's row; None: unknown."""

    node: str
    severity: Severity
    """That of the worst finding."""
    fact: str
    """The name of the worst finding; "": there is none worse than ok."""
    why: str
    """Its text."""
    age_ms: int | None
    """Time since the figures were published or covered by a heartbeat."""
    capacity_cpu_milli: int | None = None
    used_cpu_milli: int | None = None
    batch_cpu_milli: int | None = None
    """Allocatable batch CPU."""
    batch_free_cpu_milli: int | None = None
    """The part of it that no pod requests."""
    capacity_mem_bytes: int | None = None
    used_mem_bytes: int | None = None
    batch_mem_bytes: int | None = None
    batch_free_mem_bytes: int | None = None
    limits: Limits | None = None
    """The limits in force for best-effort pods."""
    policy_version: str = ""


def node_row(log: NodeLog, now_ms: int) -> NodeRow:
    """Build one node's row, by its latest figures, and samples, commands and outcomes of the last seconds."""
    metric, allocatable, facts = log.metric, log.allocatable, log.facts
    last = last_limit(log, now_ms)
    worst = next((one for one in node_findings(log, now_ms) if one.severity != "ok"), None)
    offered = None if allocatable is None else allocatable.body
    return NodeRow(
        node=log.node,
        severity="ok" if worst is None else worst.severity,
        fact="" if worst is None else worst.name,
        why="" if worst is None else worst.text,
        age_ms=None if metric is None else log.uncovered_ms(metric, now_ms),
        capacity_cpu_milli=None if facts is None else facts.capacity.cpu_milli,
        used_cpu_milli=None if metric is None else metric.body.node_use.cpu_milli,
        batch_cpu_milli=None if offered is None else offered.batch_cpu_milli,
        batch_free_cpu_milli=None if offered is None else left_of("batch_cpu_milli", offered.batch_cpu_milli, log),
        capacity_mem_bytes=None if facts is None else facts.capacity.mem_bytes,
        used_mem_bytes=None if metric is None else metric.body.node_use.mem_bytes,
        batch_mem_bytes=None if offered is None else offered.batch_mem_bytes,
        batch_free_mem_bytes=None if offered is None else left_of("batch_mem_bytes", offered.batch_mem_bytes, log),
        limits=None if last is None else measured(last.body.after),
        policy_version="" if last is None else last.body.policy_version,
    )


def in_order(rows: Iterable[NodeRow], by: Sort) -> list[NodeRow]:
    """Sort rows: largest or worst first, then by name."""
    keys: Mapping[Sort, Callable[[NodeRow], float]] = {
        "problem": lambda row: WORST_FIRST.index(row.severity),
        "name": lambda _: 0,
        "used": lambda row: -(row.used_cpu_milli or 0) / (row.capacity_cpu_milli or math.inf),
        "offered": lambda row: -(row.batch_cpu_milli or 0),
        "free": lambda row: -(row.batch_free_cpu_milli or 0),
        "age": lambda row: -(math.inf if row.age_ms is None else row.age_ms),
    }
    return sorted(rows, key=lambda row: (keys[by](row), row.node))
