"""Explains a node's figures and limits: sample, window, allocatable, command, outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.explain.carried_out import LATELY_MS, carried_out_findings
from slacktide.streams.explain.evidence import Finding, Logged, Place, newest, worst_first
from slacktide.streams.explain.figures import Figure, figures, freshness_findings
from slacktide.streams.explain.forecast import mid_findings
from slacktide.streams.explain.held import tier_held_findings, unheld_findings
from slacktide.streams.explain.ignored import ignored_node_findings
from slacktide.streams.explain.node_log import NodeLog, order
from slacktide.streams.explain.pressure import pressure_findings
from slacktide.streams.explain.selling import selling_findings
from slacktide.streams.explain.tier import tier_findings

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


def explain_node(log: NodeLog, asked_ms: int) -> NodeExplanation:
    """Explain the node's chain of records.

    Args:
        log: the node's records.
        asked_ms: now, by the clock of record timestamps.
    """
    return NodeExplanation(
        node=log.node,
        asked_ms=asked_ms,
        policy_version="" if log.policy is None else log.policy.body.version,
        policy_place=None if log.policy is None else log.policy.place,
        steps=list(_steps(log, asked_ms)),
        figures=shown_figures(log),
        findings=node_findings(log, asked_ms),
    )


def shown_figures(log: NodeLog) -> list[Figure]:
    """Return the node's published figures."""
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
                *selling_findings(log, shown_figures(log)),
                *mid_findings(log),
                *exclusive_findings(log),
                *tier_findings(log.pods),
                *ignored_node_findings(log.facts),
            ]
        return self._found


def node_findings(log: NodeLog, asked_ms: int, lasting: Lasting | None = None) -> list[Finding]:
    """Return what holds of a node, the worst first: for ``explain``, ``nodes`` and the console.

    Args:
        log: the node's records, at least those of the last ``LATELY_MS``, and the newest pod list.
        asked_ms: now, by the clock of record timestamps.
        lasting: of the node, if it is asked for again and again.
    """
    return worst_first(
        [
            *unproven_findings(log, asked_ms),
            *freshness_findings(log, asked_ms),
            *(lasting or Lasting()).of(log),
            *carried_out_findings(log, asked_ms),
            *tier_held_findings(log),
            *pressure_findings(log),
            *unheld_findings(log),
        ]
    )


def _steps(log: NodeLog, asked_ms: int) -> Iterator[Step]:
    inputs = _Inputs(log)
    setting = newest((one for one in log.commands if one.body.answer == "set"), order)
    chain: list[tuple[str, Logged[Any] | None]] = [
        ("sample", log.sample),
        ("window", log.metric),
        ("allocatable", log.allocatable),
        ("command", log.command),
        ("set", None if setting is log.command else setting),
    ]
    for name, one in chain:
        if one is not None:
            yield Step(
                name=name,
                place=one.place,
                age_ms=one.age_ms(asked_ms),
                inputs=inputs.of(one.body, itself=name == "sample"),
                record=one.body,
            )
    for outcome in shown_outcomes(log.outcomes):
        yield Step(
            name="outcome",
            place=outcome.place,
            age_ms=outcome.age_ms(asked_ms),
            inputs=inputs.of_outcome(outcome.body),
            record=outcome.body,
        )


def shown_outcomes(outcomes: Sequence[Logged[NodeOutcome]]) -> list[Logged[NodeOutcome]]:
    """Return the outcomes to show, newest first; of those without a change only the last."""
    changed = [one for one in outcomes[:-1] if one.body.result != "unchanged"]
    return [*reversed(outcomes[-1:]), *reversed(changed)][:OUTCOMES_SHOWN]


class _Inputs:
    """Positions of a record's inputs."""

    def __init__(self, log: NodeLog) -> None:
        self._samples = {order(one.body): one.place for one in log.samples}
        self._pods: Mapping[str, Place] = {
            one.body.pods_revision: one.place for one in log.samples if one.body.pods is not None
        }
        self._facts = {one.body.facts_revision: one.place for one in log.samples if one.body.facts is not None}
        self._inventories = {} if log.inventory is None else {log.inventory.body.revision: log.inventory.place}
        if log.inventory is not None:
            self._facts.setdefault(log.inventory.body.revision, log.inventory.place)
        self._forecasts = {} if log.forecast is None else {log.forecast.body.revision: log.forecast.place}
        self._policies = {} if log.policy is None else {log.policy.body.version: log.policy.place}

    def of(self, body: Message, *, itself: bool) -> list[Input]:
        """Return the inputs of a published record or a sample."""
        named: Any = body
        sample = [] if itself else [self._sample(named.boot_id, named.seq)]
        revision = getattr(body, "inventory_revision", "")
        inventory = [Input(what="inventory", name=revision, place=self._inventories.get(revision))] if revision else []
        revision = getattr(body, "forecast_revision", "")
        forecast = [Input(what="forecast", name=revision, place=self._forecasts.get(revision))] if revision else []
        return [
            *sample,
            Input(what="pods", name=named.pods_revision, place=self._pods.get(named.pods_revision)),
            Input(what="facts", name=named.facts_revision, place=self._facts.get(named.facts_revision)),
            *inventory,
            *forecast,
            self._policy(named.policy_version),
        ]

    def of_outcome(self, body: NodeOutcome) -> list[Input]:
        """Return the inputs of an outcome: the sample and the policy."""
        return [self._sample(body.boot_id, body.seq), self._policy(body.policy_version)]

    def _sample(self, boot_id: str, seq: int) -> Input:
        return Input(what="sample", name=f"{boot_id}/{seq}", place=self._samples.get((boot_id, seq)))

    def _policy(self, version: str) -> Input:
        return Input(what="policy", name=version, place=self._policies.get(version))


def exclusive_findings(log: NodeLog) -> Iterator[Finding]:
    """Report the exclusive CPUs and their pods in one finding."""
    owners = [pod for pod in log.pods if pod.exclusive_cpus and pod.phase not in ENDED_PHASES]
    if owners:
        named = [f"{one.namespace}/{one.name} has {one.exclusive_cpus}" for one in owners[:NAMED_MAX]]
        more = f" and {len(owners) - NAMED_MAX} more" if len(owners) > NAMED_MAX else ""
        yield Finding(
            name="cpus.exclusive",
            text=f"exclusive CPUs: {', '.join(named)}{more}; best-effort pods cannot use them, even when they are idle",
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
            name="agent.forged",
            text=f"some samples with the node's name were rejected, because their signature is not valid: {listed}",
            advice="find the other writer of the node's name by its records: `slacktide dead-letter list`; see "
            "docs/node-proof.md",
        )
    else:
        yield Finding(
            name="agent.unproven",
            text=f"all samples of the node were rejected, because their signature is not valid: {listed}; its guard "
            "decides",
            advice="see the agent's log: it cannot enrol at the bridge; docs/node-proof.md explains enrolment",
        )
