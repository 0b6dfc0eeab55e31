"""Reports pods whose CPU is limited: held, critical, mid or unheld ones, and the pressure of latency-sensitive pods."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from slacktide.schemas.inventory import ENDED_PHASES, LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, learned_cap_pct, resource_threshold_on
from slacktide.schemas.qos import VAIN_ADVICE
from slacktide.schemas.sample import NodeSample, PodUse
from slacktide.schemas.text import time_text
from slacktide.streams.analysis.explain.evidence import Finding
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.analysis.explain.offered import amount
from slacktide.streams.decisions.known_pods import is_limited_mid, is_spared, is_unsuppressed
from slacktide.streams.decisions.suppress.cpu_pressure import PROOF_LOOKS, Bound, fold
from slacktide.streams.decisions.suppress.cpu_suppress import PRESSURE, allowed_milli
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US
from slacktide.streams.decisions.suppress.learned_cap import SLOT_MS, learned_cap, since_slot_ms

THROTTLED_PCT = 10
"""A pod throttled in fewer periods gets about its demand."""
FULL_PCT = 90
"""Best-effort pods that use more of their limit demand more."""

NAMED_MAX, TIER_NAMED_MAX = 5, 3
_OTHERS = "the other pods of the tier have a quota each, which together equal the limit"


def is_held(on: NodeLog | None, pod: Pod) -> bool:
    """Return whether one of the samples shows that the pod is limited, so that its use does not show its demand."""
    if on is None:
        return False
    for sample in (one.body for one in on.samples):
        use = _use(sample, pod)
        if use is None or not use.best_effort_group or is_unsuppressed(pod):
            continue
        if use.periods and (use.throttled_periods or 0) * 100 >= THROTTLED_PCT * use.periods:
            return True
        # The tier's quota also throttles pods without a limit.
        allowance, asked = _allowance(on, sample)
        if allowance is not None:
            used = sum(one.cpu_milli or 0 for one in sample.pod_use if one.best_effort_group)
            if used * 100 >= FULL_PCT * allowance or allowance < (asked or 0):
                return True
    return False


def held_findings(on: NodeLog | None, pod: Pod) -> Iterator[Finding]:
    """Report the limit of best-effort pods in the node's newest sample, for one pod."""
    if on is None or on.sample is None:
        return
    use = _use(on.sample.body, pod)
    allowance, asked = _allowance(on, on.sample.body)
    if use is None or not use.best_effort_group or is_unsuppressed(pod) or allowance is None:
        return
    short = asked is not None and allowance < asked
    of_asked = "" if asked is None else f", and request {amount(asked, 'cpu_milli')} together"
    throttled = ""
    if use.periods:
        throttled = f"; this pod was throttled in {(use.throttled_periods or 0) * 100 // use.periods}% of its periods"
    may = f"the best-effort pods of {on.node} may use {amount(allowance, 'cpu_milli')}"
    yield Finding(
        "pod.held" if short else "pod.limit",
        f"CPU limit: {may}{of_asked}{throttled}",
        advice=f"run `slacktide explain node {on.node}` to see what uses the node" if short else "",
    )


def waiting_findings(on: NodeLog | None, pod: Pod, asked_ms: int) -> Iterator[Finding]:
    """Report how long the pod waited in the last 10 s that were measured, if that is not long ago."""
    samples = [] if on is None else [one for one in on.samples if one.place.logged_ms > asked_ms - WAITED_MS]
    found = (one for sample in reversed(samples) for one in sample.body.pod_pressure if one.uid == pod.uid)
    its = next(found, None)
    if its is None:
        return
    figures = {
        "CPU": (its.cpu_some_pct, its.cpu_full_pct),
        "memory": (its.mem_some_pct, its.mem_full_pct),
        "IO": (its.io_some_pct, its.io_full_pct),
    }
    parts = [f"for {name} {some:g}%{_full(full)}" for name, (some, full) in figures.items() if some is not None]
    if parts:
        yield Finding("pod.pressure", f"waited in 10 s: {', '.join(parts)} of the time")


def _full(pct: float | None) -> str:
    """Return the share of time in which all processes waited; "": none did, or it is unknown."""
    return f" (all processes {pct:g}%)" if pct else ""


WAITED_MS = 30_000


def tier_held_findings(on: NodeLog) -> Iterator[Finding]:
    """Report that the node's best-effort pods may use less CPU than they requested."""
    allowance, asked = (None, None) if on.sample is None else _allowance(on, on.sample.body)
    if allowance is not None and asked is not None and allowance < asked:
        may = f"best-effort pods may use {amount(allowance, 'cpu_milli')} of CPU"
        yield Finding("batch.held", f"{may}, and request {amount(asked, 'cpu_milli')}")


def unheld_findings(on: NodeLog) -> Iterator[Finding]:
    """Report pods that claim to be best-effort outside of that cgroup. They count as latency-sensitive."""
    unheld = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in on.pods if pod.unheld}
    if not unheld:
        return
    uses = () if on.sample is None else on.sample.body.pod_use
    used = sum(one.cpu_milli or 0 for one in uses if one.uid in unheld)
    names = sorted(unheld.values())
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    yield Finding(
        "pods.unheld",
        f"not limited: {', '.join(names[:NAMED_MAX])}{more}: they are labelled best-effort or request batch "
        f"resources, but run outside the best-effort cgroup; they use {amount(used, 'cpu_milli')} of CPU, and count "
        "as koord-prod",
        advice=VAIN_ADVICE,
    )


def _use(sample: NodeSample, pod: Pod) -> PodUse | None:
    return next((one for one in sample.pod_use if one.uid == pod.uid), None)


def _allowance(on: NodeLog, sample: NodeSample) -> tuple[int | None, int | None]:
    """Return the CPU limit of best-effort pods, and the batch CPU that running pods request; None: none, or unknown."""
    limits = sample.limits
    capacity_milli = None if on.facts is None else on.facts.capacity.cpu_milli
    allowance = None if limits is None else allowed_milli(limits, capacity_milli)
    if allowance is None:
        return None, None
    if on.score is not None:
        asked = on.score.body.batch_asked.cpu_milli
    else:
        asked = sum(one.requests.batch_cpu_milli or 0 for one in on.pods if one.phase not in ENDED_PHASES)
    return allowance, asked or None


def tier_findings(pods: Sequence[Pod]) -> Iterator[Finding]:
    """Report a node's excluded critical pods, and its mid pods with their own limit."""
    live = [pod for pod in pods if pod.phase in LIVE_PHASES]
    if spared := _named([pod for pod in live if is_spared(pod)]):
        yield Finding(
            "tier.critical",
            f"critical pods without requests are in the best-effort tier: {spared}; {_OTHERS}",
            advice="give them CPU requests: then one quota limits the tier, and its pods share unused CPU",
        )
    if mid := _named([pod for pod in live if is_limited_mid(pod)]):
        yield Finding("tier.mid", f"mid pods in the best-effort tier are not suppressed: {mid}; {_OTHERS}")


def _named(pods: Sequence[Pod]) -> str:
    names = [f"{pod.namespace}/{pod.name}" for pod in pods[:TIER_NAMED_MAX]]
    return ", ".join([*names, *([f"{len(pods) - TIER_NAMED_MAX} more"] if len(pods) > TIER_NAMED_MAX else [])])


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

    A permille of running time is a millisecond per second. ``bound``: of the decision, such as ``pressure_cut``; others
    give figures only.
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


def learned_cap_findings(on: NodeLog) -> Iterator[Finding]:
    """Report the cap that was learned of the node's services, whether the policy applies it, and exploring."""
    if on.policy is None or on.facts is None or not on.facts.slope_permille:
        return
    colocation = colocation_on(on.policy.body, on.facts)
    cap_pct = learned_cap_pct(colocation, on.facts)
    if cap_pct is None or not colocation.enable or colocation.learned_caps == "off":
        return
    applied = colocation.learned_caps == "on"
    yield Finding(
        "node.learned-cap",
        f"best-effort pods {'may' if applied else 'should'} use at most {cap_pct}% of the node's CPU: beyond it, "
        f"{on.facts.slope_of} is predicted to slow down by more than {colocation.interference_budget_pct}%"
        f"{_exploring(on, on.facts, on.policy.body) if applied else ' (learnedCaps is shadow: not applied)'}",
        advice=f"see `slacktide explain service {on.facts.slope_of}`",
    )


def _exploring(on: NodeLog, facts: NodeFacts, policy: Policy) -> str:
    """Return how far and until when the newest sample's node explores below its cap; "": it does not."""
    threshold = resource_threshold_on(policy, facts)
    cap = learned_cap(policy, facts, threshold)
    if cap is None or on.sample is None or not threshold.enable:
        return ""
    at_ms = on.sample.body.observed_ms
    most_us = cap.most_us(at_ms)
    if most_us == cap.cap_us:
        return ""
    until_ms = at_ms - since_slot_ms(cap.slot, at_ms) + SLOT_MS
    most = amount(most_us * 1_000 // PERIOD_US, "cpu_milli")
    return f"; the node explores: until {time_text(until_ms)} they may use at most {most}"


def pressure_findings(on: NodeLog) -> Iterator[Finding]:
    """Report the newest measurement of a node with a pressure policy, or that there is none."""
    if on.sample is None:
        return
    sample = on.sample.body
    same = (one.body.facts for one in reversed(on.samples) if one.body.facts_revision == sample.facts_revision)
    facts = next((one for one in same if one is not None), on.facts)
    if facts is None or on.policy is None or sample.policy_version != on.policy.body.version:
        return
    threshold = resource_threshold_on(on.policy.body, facts)
    if not threshold.enable or threshold.cpu_suppress_signal == "usage":
        return
    if sample.ls_pressure is None:
        yield Finding(
            "node.no-pressure",
            f"the policy's cpuSuppressSignal is {threshold.cpu_suppress_signal}, but the node's newest sample "
            "has no pressure: best-effort pods are limited by CPU use instead",
            advice="run `slacktide doctor` on the node: it may be unable to read stalls of pods (pressure.stall)",
        )
        return
    step = fold(sample.ls_pressure)
    looked = pressure_text(f"{PRESSURE}{step.bound}", step.terms)
    base = f"no measurement since the last sample; the learned baseline is {step.gate.base_permille:,} ms per second"
    yield Finding("node.pressure", f"{step.bound}: {looked or base}")
