"""Reports whether a running pod is limited, and the CPU that the best-effort pods of its node share."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.qos import VAIN_ADVICE
from slacktide.schemas.sample import NodeSample, PodUse
from slacktide.streams.decisions.known_pods import is_unsuppressed
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node_log import NodeLog
from slacktide.streams.explain.selling import amount

THROTTLED_PCT = 10
"""A pod throttled in fewer periods gets about its demand."""
FULL_PCT = 90
"""Best-effort pods that use more of their limit demand more."""

NAMED_MAX = 5


def is_held(on: NodeLog | None, pod: Pod) -> bool:
    """Return whether one of the samples shows that the pod is limited, so that its use does not show its demand."""
    return on is not None and any(_is_held(on, one.body, pod) for one in on.samples)


def _is_held(on: NodeLog, sample: NodeSample, pod: Pod) -> bool:
    use = _use(sample, pod)
    if use is None or not use.best_effort_group or is_unsuppressed(pod):
        return False
    if use.periods and (use.throttled_periods or 0) * 100 >= THROTTLED_PCT * use.periods:
        return True
    # The tier's quota also throttles pods without a limit.
    allowance = _allowance_milli(sample)
    if allowance is None:
        return False
    used = sum(one.cpu_milli or 0 for one in sample.pod_use if one.best_effort_group)
    return used * 100 >= FULL_PCT * allowance or allowance < (_asked_milli(on) or 0)


def held_findings(on: NodeLog | None, pod: Pod) -> Iterator[Finding]:
    """Report the limit of best-effort pods in the node's newest sample, for one pod."""
    sample = _newest(on)
    use = None if sample is None else _use(sample, pod)
    if on is None or sample is None or use is None or not use.best_effort_group or is_unsuppressed(pod):
        return
    allowance = _allowance_milli(sample)
    if allowance is None:
        return
    asked = _asked_milli(on)
    short = asked is not None and allowance < asked
    of_asked = "" if asked is None else f", and request {amount(asked, 'cpu_milli')} together"
    throttled = ""
    if use.periods:
        throttled = f"; this pod was throttled in {(use.throttled_periods or 0) * 100 // use.periods}% of its periods"
    yield Finding(
        name="pod.held" if short else "pod.limit",
        text=f"CPU limit: the best-effort pods of {on.node} may use "
        f"{amount(allowance, 'cpu_milli')}{of_asked}{throttled}",
        advice=f"run `slacktide explain node {on.node}` to see what uses the node" if short else "",
    )


def tier_held_findings(on: NodeLog) -> Iterator[Finding]:
    """Report that the node's best-effort pods may use less CPU than they requested."""
    sample = _newest(on)
    allowance = None if sample is None else _allowance_milli(sample)
    asked = _asked_milli(on)
    if allowance is not None and asked is not None and allowance < asked:
        text = f"best-effort pods may use {amount(allowance, 'cpu_milli')} of CPU, and request "
        yield Finding(name="batch.held", text=f"{text}{amount(asked, 'cpu_milli')}")


def unheld_findings(on: NodeLog) -> Iterator[Finding]:
    """Report pods that claim to be best-effort outside of that cgroup. They count as latency-sensitive."""
    unheld = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in on.pods if pod.unheld}
    if not unheld:
        return
    sample = _newest(on)
    used = 0 if sample is None else sum(one.cpu_milli or 0 for one in sample.pod_use if one.uid in unheld)
    names = sorted(unheld.values())
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    yield Finding(
        name="pods.unheld",
        text=f"not limited: {', '.join(names[:NAMED_MAX])}{more}: they are labelled best-effort or request batch "
        f"resources, but run outside the best-effort cgroup; they use {amount(used, 'cpu_milli')} of CPU, and count "
        "as koord-prod",
        advice=VAIN_ADVICE,
    )


def _newest(on: NodeLog | None) -> NodeSample | None:
    newest = None if on is None else on.sample
    return None if newest is None else newest.body


def _use(sample: NodeSample, pod: Pod) -> PodUse | None:
    return next((one for one in sample.pod_use if one.uid == pod.uid), None)


def _asked_milli(on: NodeLog) -> int | None:
    """Return the batch CPU that the node's running pods request; None: none, or unknown."""
    if on.score is not None:
        return on.score.body.batch_asked.cpu_milli or None
    return sum((one.requests.batch_cpu_milli or 0) for one in on.pods if one.phase not in ENDED_PHASES) or None


def _allowance_milli(sample: NodeSample) -> int | None:
    limits = sample.limits
    if limits is None or limits.be_cfs_quota_us is None or not limits.be_cfs_period_us:
        return None
    return limits.be_cfs_quota_us * 1_000 // limits.be_cfs_period_us
