"""Checks whether Slacktide can be installed in this cluster, and whether the examples would run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.deploy.cli.doctor.api_checks import MINOR_FINE_GRAINED, MINOR_MIN
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, unknown, warned
from slacktide.deploy.runtime.text import count

EXAMPLE_CPU_MILLI = 400
"""The request of the pod of deploy/kubernetes/examples/batch-job.yaml."""
OWN_NODES = "colocation-agent=slacktide"
"""Label of Slacktide's nodes in a cluster with Koordinator."""
AGENT_CPU_MILLI, PARTS_CPU_MILLI = 40, 1_500
"""Slacktide's requests by the chart's defaults: per node, and for the other parts in total."""
_MINOR = re.compile(r"v?1\.(\d+)")
_RELEASE = re.compile(r"v?(1\.\d+\.\d+)")
_NATIVE = ("cpu", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """One node's kubelet."""

    node: str
    version: str
    certificate: Literal["accepted", "refused", "not reached", "not asked"]
    trouble: str = ""
    """Why the certificate is rejected, or the kubelet not reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The batch CPU that a node could publish, in millicores."""

    node: str
    most_milli: int
    """If its pods used no CPU."""
    by_requests_milli: int
    """If its pods used their requests. Before an installation, add the agent's and a share of the other parts'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One item of a LimitRange: resource names by field."""

    namespace: str
    name: str
    fields: Mapping[str, Sequence[str]]

    def meets(self, *fields: str) -> bool:
        """Return whether one of these fields names native CPU or memory."""
        return any(name in _NATIVE for field in fields for name in self.fields.get(field, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Koordinator:
    """The parts of Koordinator in a cluster."""

    agents: Mapping[str, bool]
    """koordlet's pods as NAMESPACE/NAME, and whether each runs on a node of Slacktide's."""
    parts: Sequence[str]
    """Koordinator's other pods, CRDs and webhook configurations."""
    own_nodes: int
    """Nodes with the label colocation-agent=slacktide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFacts:
    """A cluster before an installation or upgrade. A text instead of a list is the reason why it is unknown."""

    version: str
    """The API server's version, such as ``v1.34.4``; "": unknown."""
    kubelets: Sequence[Kubelet] | str
    kube_scheduler: str
    """Image of the kube-scheduler in Slacktide's Deployment; "": none."""
    latency_sensitive: Sequence[str] | str
    """Pods of class LSE, LSR or LS in the best-effort tier, as NAMESPACE/NAME."""
    limits: Sequence[Limits] | str
    koordinator: Koordinator | str
    offers: Sequence[Offer] | str


def preflight_findings(facts: PreflightFacts) -> Iterator[Finding]:
    """Report all findings before an installation."""
    yield _version(facts.version)
    yield from _kubelets(facts)
    yield _kube_scheduler(facts)
    yield _latency_sensitive(facts.latency_sensitive)
    yield _limits(facts.limits)
    yield _koordinator(facts.koordinator)
    yield _offers(facts.offers)


def _minor(version: str) -> int | None:
    found = _MINOR.match(version)
    return None if found is None else int(found[1])


def _version(version: str) -> Finding:
    check, needed = "cluster.version", f"Kubernetes 1.{MINOR_MIN} or newer"
    minor = _minor(version)
    if minor is None:
        return warned(check, f"unknown: {version or 'no answer'}", needed, "check that the API server answers /version")
    if minor < MINOR_MIN:
        return failed(
            check,
            version,
            needed,
            "upgrade the cluster: in older versions tokens do not contain their node, and admission policies differ",
        )
    return good(check, version, needed)


def _kubelets(facts: PreflightFacts) -> Iterator[Finding]:
    check, needed = "cluster.kubelet-versions", f"kubelets of 1.{MINOR_FINE_GRAINED} or newer, which check nodes/pods"
    if isinstance(facts.kubelets, str):
        yield unknown(check, facts.kubelets, needed, "list nodes")
        return
    old = [one for one in facts.kubelets if (_minor(one.version) or MINOR_FINE_GRAINED) < MINOR_FINE_GRAINED]
    if old:
        advice = (
            "set kubelet.access=proxy in the chart, or add deploy/kubernetes/components/kubelet-before-1.33: "
            "agents can list pods on these nodes only with nodes/proxy"
        )
        yield warned(check, some([f"{one.node} {one.version}" for one in old]), needed, advice)
    else:
        yield good(check, f"{count(len(facts.kubelets), 'node')}", needed)
    yield _certificates(facts.kubelets)


_AWAY = (
    "check that pods can reach its port; it may be closed to clients outside the cluster: see the log of the "
    "chart's Job"
)


def _certificates(kubelets: Sequence[Kubelet]) -> Finding:
    check, needed = "cluster.kubelet-certificates", "certificates that the cluster's CA signed"
    refused = [f"{one.node}: {one.trouble}" for one in kubelets if one.certificate == "refused"]
    away = [f"{one.node}: {one.trouble}" for one in kubelets if one.certificate == "not reached"]
    if refused:
        advice = (
            "set serverTLSBootstrap in the kubelets' configuration and approve their requests (kubectl get "
            "csr): agents reject such a kubelet, and find no pods. Or accept any certificate: set "
            "kubelet.insecure=true in the chart or add deploy/kubernetes/components/kubelet-self-signed, and "
            "give --kubelet-insecure here"
        )
        return failed(check, some(refused), needed, advice)
    if away:
        return warned(check, f"not reached: {some(away)}", needed, _AWAY)
    asked = sum(one.certificate != "not asked" for one in kubelets)
    return good(check, f"{asked} of {count(len(kubelets), 'node')} checked", needed)


def _kube_scheduler(facts: PreflightFacts) -> Finding:
    check, needed = "cluster.kube-scheduler", "a kube-scheduler with the API server's minor version"
    release, server = _RELEASE.match(facts.version), _minor(facts.version)
    if release is None or server is None:
        return warned(check, "unknown: the version of the API server is unknown", needed, "see cluster.version")
    image = f"registry.k8s.io/kube-scheduler:v{release[1]}"
    if not facts.kube_scheduler:
        return good(check, f"none yet; Slacktide's image is {image}", needed)
    minor = _minor(facts.kube_scheduler.partition("@")[0].rpartition(":")[2])
    advice = f"set the image {image}: scheduler.kubeScheduler.tag=v{release[1]} in the chart, which is its default"
    if minor is None:
        return warned(check, f"unknown: the image {facts.kube_scheduler} has no version", needed, advice)
    if minor == server:
        return good(check, facts.kube_scheduler, needed)
    wrong = warned if minor == server - 1 else failed  # Kubernetes allows a kube-scheduler one minor version older
    return wrong(check, f"{facts.kube_scheduler}, but the API server is {facts.version}", needed, advice)


def _latency_sensitive(pods: Sequence[str] | str) -> Finding:
    check, needed = "cluster.latency-sensitive-pods", "requests on pods of class LSE, LSR and LS"
    if isinstance(pods, str):
        return unknown(check, pods, needed, "list pods")
    if not pods:
        return good(check, "all have requests", needed)
    advice = (
        "give them CPU and memory requests; without requests, the kubelet places them in the best-effort tier, "
        "where they are suppressed like batch pods"
    )
    return warned(check, f"without requests: {some(pods)}", needed, advice)


def _limits(limits: Sequence[Limits] | str) -> Finding:
    check, needed = "cluster.limit-ranges", "no LimitRange for native CPU or memory in namespaces of batch pods"
    if isinstance(limits, str):
        return unknown(check, limits, needed, "list limitranges")
    # Kubernetes takes a maximum as the default limit, and a default limit as the default request.
    adding = [one for one in limits if one.meets("default", "defaultRequest")]
    refusing = [one for one in limits if one not in adding and one.meets("min", "max", "maxLimitRequestRatio")]
    if not adding and not refusing:
        return good(check, "none", needed)
    parts = [
        f"{what}: {some(sorted({f'{one.namespace}/{one.name}' for one in found}))}"
        for what, found in (("sets native requests or limits", adding), ("rejects pods without them", refusing))
        if found
    ]
    advice = (
        "run batch pods in namespaces without such a LimitRange; with native requests a batch pod is outside "
        "the best-effort tier, and is not suppressed"
    )
    return warned(check, "; ".join(parts), needed, advice)


def _koordinator(found: Koordinator | str) -> Finding:
    check, needed = "cluster.koordinator", "no Koordinator on Slacktide's nodes"
    if isinstance(found, str):
        return unknown(check, found, needed, "list pods and nodes, and get customresourcedefinitions")
    both = [name for name, ours in found.agents.items() if ours]
    read = "docs/koordinator.md#both-in-one-cluster"
    if both:
        advice = (
            f"keep koordlet off these nodes, see {read}: koordlet and Slacktide's agent would write the same cgroups"
        )
        return failed(check, f"on nodes labelled {OWN_NODES}: {some(both)}", needed, advice)
    if found.agents and not found.own_nodes:
        advice = (
            f"remove Koordinator first, or run both on different nodes: label Slacktide's nodes {OWN_NODES}, "
            f"keep koordlet off them, and install with besideKoordinator=true, see {read}. Otherwise two agents "
            "would write the same cgroups"
        )
        return failed(check, f"koordlet runs: {some(list(found.agents))}", needed, advice)
    if found.agents:
        nodes = count(found.own_nodes, "node")
        return good(check, f"koordlet runs, but not on the {nodes} of Slacktide", needed)
    if found.parts:
        advice = (
            f"remove the rest of Koordinator, or set besideKoordinator=true, see {read}: otherwise two webhooks "
            "would change each pod"
        )
        return warned(check, some(found.parts), needed, advice)
    return good(check, "none", needed)


def _offers(offers: Sequence[Offer] | str) -> Finding:
    check, needed = (
        "cluster.batch-amounts",
        f"a node with {EXAMPLE_CPU_MILLI}m of batch CPU, for the Job in the examples",
    )
    if isinstance(offers, str):
        return unknown(check, offers, needed, "list nodes and pods")
    if not offers:
        return good(check, "no nodes yet", needed)
    best = max(offers, key=lambda one: (one.by_requests_milli, one.most_milli))
    by_requests = f"{best.by_requests_milli}m if all its pods use what they request"
    found = f"{best.node} can offer up to {best.most_milli}m, and {by_requests}"
    if best.by_requests_milli >= EXAMPLE_CPU_MILLI:
        return good(check, found, needed)
    advice = (
        "request less batch CPU, or raise cpuReclaimThresholdPercent of colocation-config together with the "
        "suppress threshold"
    )
    if best.most_milli < EXAMPLE_CPU_MILLI:
        advice = f"a pod that requests more than that stays pending: {advice}"
    return warned(check, found, needed, advice)
