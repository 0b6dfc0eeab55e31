"""Checks the agent that runs here, its records in Kafka, and its rights in the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.doctor.facts import (
    EVENTS,
    EVICTIONS,
    KUBELET_PODS,
    KUBELET_PROXY,
    AgentFacts,
    ApiFacts,
    ApiRight,
    NoApi,
)
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned
from slacktide.streams.explain.evidence import Finding as Explained

SILENT = ("agent.silent", "figures.stand")
"""Findings about a node whose agent does not run, as before an upgrade."""
MINOR_MIN = 30
"""From Kubernetes 1.30 on tokens name the node of the pod that they are bound to (ServiceAccountTokenPodNodeInfo)."""
MINOR_FINE_GRAINED = 33
"""From this version on the kubelet requires nodes/pods (KubeletFineGrainedAuthz)."""
_GRANT = "to grant it, run kubectl apply -k deploy/kubernetes, or add the ClusterRole rule"


def agent_findings(facts: AgentFacts | None) -> Iterator[Finding]:
    """Report the process's health, as its probes see it."""
    if facts is None:
        yield good("agent.live", "no agent runs here", "an agent that answers, if one runs")
        return
    check, needed = "agent.live", "an agent that answers"
    if facts.not_live:
        advice = (
            "check that --metrics-host and --metrics-port are the agent's; if the agent is frozen, restart it: "
            "until then best-effort pods keep their last limit"
        )
        yield failed(check, f"{facts.url}: {facts.not_live}", needed, advice)
        return
    yield good(check, facts.url, needed)
    needed, advice = "an agent that is ready", "its log and the checks below show what is missing"
    if facts.not_ready:
        yield failed("agent.ready", facts.not_ready, needed, advice)
    if facts.not_fresh:
        yield warned("agent.fresh", facts.not_fresh, "samples that are answered in time", advice)


def node_findings(node: str, explained: Sequence[Explained], *, runs: bool) -> Iterator[Finding]:
    """Report the node's health, as Kafka shows it.

    Args:
        node: its name.
        explained: the freshness findings of `slacktide explain node`.
        runs: whether an agent runs here; if not, its silence is expected.
    """
    needed = f"fresh samples and answers of node {node}"
    bad = [one for one in explained if one.severity in {"problem", "warning"}]
    if not bad:
        yield good("node.fresh", f"fresh: node {node}", needed)
    for one in bad:
        wrong = failed if one.severity == "problem" and (runs or one.name not in SILENT) else warned
        yield wrong("node.fresh", one.text, needed, f"{one.advice}; `slacktide explain node {node}` shows more")


def api_findings(facts: ApiFacts | NoApi) -> Iterator[Finding]:
    """Report all findings of the API server, or that it does not answer."""
    needed = "an API server that answers"
    if isinstance(facts, NoApi):
        advice = (
            "check that the API server runs, that --api-server can be reached from here, and that the token is "
            "valid in this cluster"
        )
        yield failed("api.server", f"{facts.url}: {facts.trouble}", needed, advice)
        return
    yield good("api.server", facts.url, needed)
    yield _version(facts)
    yield _token(facts)
    yield _right(facts, EVICTIONS, "api.right-to-evict", "without this right, pods are only throttled and frozen")
    yield _events(facts)
    yield _kubelet(facts)


def _version(facts: ApiFacts) -> Finding:
    check, found, needed = "api.version", f"Kubernetes {facts.version}", f"1.{MINOR_MIN} or newer, for evictions"
    if facts.minor is None or facts.minor >= MINOR_MIN:
        return good(check, found, needed)
    advice = (
        "upgrade the cluster; in older versions a token does not contain its node, and the webhook that checks "
        "evictions rejects all: pods are only throttled and frozen"
    )
    return failed(check, found, needed, advice)


def _token(facts: ApiFacts) -> Finding:
    check, needed, token = "api.token", "bound to a pod, with the name of its node", facts.token
    if token.pod and token.node:
        return good(check, f"bound to pod {token.pod} on node {token.node}", needed)
    advice = (
        "give the token of the agent's own pod (a serviceAccountToken volume, which each pod has by default); "
        "a token from a Secret or a client certificate is not accepted"
    )
    if token.pod:
        return failed(
            check,
            f"bound to pod {token.pod}, but without the name of its node",
            needed,
            f"see api.version; or {advice}",
        )
    return failed(check, "not bound to a pod", needed, advice)


def _events(facts: ApiFacts) -> Finding:
    check = "api.right-to-tell"
    if facts.rights[EVENTS]:
        return good(check, f"may {_text_of(EVENTS)}", _text_of(EVENTS))
    advice = f"without this right, kubectl describe pod shows no reason of an eviction; {_GRANT} {_rule(EVENTS)}"
    return warned(check, f"may not {_text_of(EVENTS)}", _text_of(EVENTS), advice)


def _kubelet(facts: ApiFacts) -> Finding:
    check = "api.right-to-list-pods"
    if facts.minor is None or facts.minor >= MINOR_FINE_GRAINED:
        return _right(facts, KUBELET_PODS, check, "the kubelet requires this right to list its pods")
    advice = (
        "before Kubernetes 1.33 the kubelet requires this right to list its pods, although it also allows "
        "commands in pods; to grant it, add deploy/kubernetes/components/kubelet-before-1.33"
    )
    if facts.rights[KUBELET_PROXY]:
        return good(check, f"may {_text_of(KUBELET_PROXY)}", _text_of(KUBELET_PROXY))
    return failed(check, f"may not {_text_of(KUBELET_PROXY)}", _text_of(KUBELET_PROXY), advice)


def _right(facts: ApiFacts, right: ApiRight, check: str, why: str) -> Finding:
    if facts.rights[right]:
        return good(check, f"may {_text_of(right)}", _text_of(right))
    return failed(check, f"may not {_text_of(right)}", _text_of(right), f"{why}; {_GRANT} {_rule(right)}")


def _text_of(right: ApiRight) -> str:
    return f"{right.verb} {_resource(right)}"


def _resource(right: ApiRight) -> str:
    return "/".join(filter(None, (right.resource, right.subresource)))


def _rule(right: ApiRight) -> str:
    group = right.group or '""'
    return f"apiGroups [{group}], resources [{_resource(right)}], verbs [{right.verb}]"
