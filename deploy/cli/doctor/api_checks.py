"""Checks by the cluster's answers whether an agent may evict, create Events, and list its node's pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.doctor.facts import EVENTS, EVICTIONS, KUBELET_PODS, KUBELET_PROXY, ApiFacts, ApiRight, NoApi
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned

MINOR_MIN = 30
"""From Kubernetes 1.30 on tokens name the node of the pod that they are bound to (ServiceAccountTokenPodNodeInfo)."""
MINOR_FINE_GRAINED = 33
"""From this version on the kubelet requires nodes/pods (KubeletFineGrainedAuthz)."""
_GRANT = "kubectl apply -k deploy/kubernetes grants it, or: ClusterRole rule"


def api_findings(facts: ApiFacts | NoApi) -> Iterator[Finding]:
    """Report all findings of the API server, or that it does not answer."""
    needed = "an API server that answers"
    if isinstance(facts, NoApi):
        advice = (
            "is it running, is --api-server right as seen from here, and is the token one of this cluster, not expired?"
        )
        yield failed("api.server", f"{facts.url}: {facts.trouble}", needed, advice)
        return
    yield good("api.server", facts.url, needed)
    yield _version(facts)
    yield _token(facts)
    yield _evictions(facts)
    yield _events(facts)
    yield _kubelet(facts)


def _version(facts: ApiFacts) -> Finding:
    check, found, needed = "api.version", f"Kubernetes {facts.version}", f"1.{MINOR_MIN} or newer, to evict"
    if facts.minor is None or facts.minor >= MINOR_MIN:
        return good(check, found, needed)
    advice = (
        "before, a token names no node, and the webhook that watches over evictions refuses each: pods are throttled "
        "and frozen only; upgrade the cluster"
    )
    return failed(check, found, needed, advice)


def _token(facts: ApiFacts) -> Finding:
    check, needed, token = "api.token", "bound to a pod, and naming its node", facts.token
    if token.pod and token.node:
        return good(check, f"bound to pod {token.pod} on node {token.node}", needed)
    advice = (
        "give the token of the agent's own pod (a serviceAccountToken volume, as each pod has it by default), not one "
        "of a Secret, and no client certificate"
    )
    if token.pod:
        return failed(check, f"bound to pod {token.pod}, but names no node", needed, f"see api.version; or {advice}")
    return failed(check, "not bound to a pod", needed, advice)


def _evictions(facts: ApiFacts) -> Finding:
    return _right(facts, EVICTIONS, "api.right-to-evict", "without, pods are throttled and frozen only")


def _events(facts: ApiFacts) -> Finding:
    check = "api.right-to-tell"
    if facts.rights[EVENTS]:
        return good(check, f"may {_text_of(EVENTS)}", _text_of(EVENTS))
    advice = f"without, kubectl describe pod shows no reason; {_GRANT} {_rule(EVENTS)}"
    return warned(check, f"may not {_text_of(EVENTS)}", _text_of(EVENTS), advice)


def _kubelet(facts: ApiFacts) -> Finding:
    check = "api.right-to-list-pods"
    if facts.minor is None or facts.minor >= MINOR_FINE_GRAINED:
        return _right(facts, KUBELET_PODS, check, "the kubelet lists its pods to who has this right")
    advice = (
        "before Kubernetes 1.33 the kubelet lists its pods to who has this right, which goes further (commands in "
        "pods): deploy/kubernetes/components/kubelet-before-1.33 grants it, if you want to"
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
