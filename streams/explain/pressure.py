"""Reports the CPU and memory pressure (PSI) of latency-sensitive pods against their baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.suppress.cpu_pressure import PROOF_LOOKS, Bound, fold
from slacktide.streams.decisions.suppress.cpu_suppress import PRESSURE
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node_log import NodeLog

_MEANS: Final[Mapping[Bound, str]] = {
    "calm": "stall is not above the threshold, so best-effort pods run",
    "idle": "stall is above the threshold, but a whole CPU was always idle, so best-effort pods run",
    "not_running": "stall is above the threshold, but best-effort pods hardly run, so they are not the cause",
    "paused": "stall is above the threshold, but pausing best-effort pods did not help before, so they are not paused "
    "for {wait_ms:,} ms",
    "cut": "stall is above the threshold, so best-effort pods are paused",
    "held": "best-effort pods are paused; {proof_looks:,} of {proof_looks_min} measurements of the effect are done",
    "helped": "pausing at {cut_permille:,} ms of stall helped, so best-effort pods run again",
    "not_the_cause": "pausing at {cut_permille:,} ms of stall did not "
    "help, so best-effort pods run again and are not paused "
    "for {pause_ms:,} ms",
    "unproven": "best-effort pods did not slow down within {closed_ms:,} ms, so the pause ends, "
    "and they are not paused for {pause_ms:,} ms",
}


def pressure_text(bound: str, terms: Terms) -> str:
    """Return the arithmetic of a decision; "": pressure was not measured, or another version wrote the terms.

    A permille of running time is a millisecond per second.

    Args:
        bound: of the decision, such as ``pressure_cut``. Other bounds give figures only.
        terms: of the decision.
    """
    means = next((text for name, text in _MEANS.items() if bound == f"{PRESSURE}{name}"), "")
    try:
        figures = (
            "latency-sensitive pods stalled {stall_permille:,} ms per second of running; their learned "
            "baseline is {base_permille:,} ms, the threshold is {line_permille:,} ms".format_map(terms)
        )
        return f"{figures}: {means.format_map({**terms, 'proof_looks_min': PROOF_LOOKS})}" if means else figures
    except KeyError:
        return ""


def pressure_findings(on: NodeLog) -> Iterator[Finding]:
    """Report the newest measurement of a node with a pressure policy, or that there is none."""
    sample = None if on.sample is None else on.sample.body
    facts = None if sample is None else _facts(on, sample)
    if sample is None or facts is None or on.policy is None or sample.policy_version != on.policy.body.version:
        return
    threshold = resource_threshold_on(on.policy.body, facts)
    if not threshold.enable or threshold.cpu_suppress_signal == "usage":
        return
    if sample.ls_pressure is None:
        yield Finding(
            name="node.no-pressure",
            text=f"the policy's cpuSuppressSignal is {threshold.cpu_suppress_signal}, but the node's newest sample "
            "has no pressure: best-effort pods are limited by CPU use instead",
            advice="run `slacktide doctor` on the node: its kernel may lack PSI for cgroups (pressure.groups)",
        )
        return
    step = fold(sample.ls_pressure, facts.capacity.cpu_milli or 0)
    looked = pressure_text(f"{PRESSURE}{step.bound}", step.terms)
    base = f"no measurement since the last sample; the learned baseline is {step.gate.base_permille:,} ms per second"
    yield Finding(name="node.pressure", text=f"{step.bound}: {looked or base}")


def _facts(on: NodeLog, sample: NodeSample) -> NodeFacts | None:
    """Return the facts of the sample's revision, else the latest known."""
    found = (one.body for one in reversed(on.samples) if one.body.facts_revision == sample.facts_revision)
    return next((body.facts for body in found if body.facts is not None), on.facts)
