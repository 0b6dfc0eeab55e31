"""Checks whether Slacktide can be installed in a cluster, and whether its pods and batch pods would run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.deploy.cli.doctor.agent_checks import MINOR_FINE_GRAINED, MINOR_MIN
from slacktide.deploy.cli.doctor.drain_checks import drain_finding
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, unknown, warned
from slacktide.deploy.runtime.text import count

SYSTEM = "slacktide-system"
_COUNTED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""CPU and memory resources of quotas. Under such a quota a pod must declare them; batch pods do not."""
BATCH_CLASS = "koord-batch"
CRITICAL = "system-node-critical"
EXAMPLE_CPU_MILLI = 400
"""The request of the pod of deploy/kubernetes/examples/batch-job.yaml."""
OWN_NODES = "colocation-agent=slacktide"
"""Label of Slacktide's nodes in a cluster with Koordinator."""
AGENT_CPU_MILLI, PARTS_CPU_MILLI = 40, 1_500
"""Slacktide's requests by the chart's defaults: per node, and for the other parts in total."""
_MINOR = re.compile(r"v?1\.(\d+)")
_RELEASE = re.compile(r"v?(1\.\d+\.\d+)")
_NATIVE = ("cpu", "memory")
_AWAY = (
    "check that pods can reach its port; it may be closed to clients outside the cluster: see the log of the "
    "chart's Job"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One requirement of a quota's scopes."""

    name: str
    operator: str = "Exists"
    values: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A ResourceQuota."""

    namespace: str
    name: str
    hard: Sequence[str]
    scopes: Sequence[Scope] = ()

    def refuses_batch(self) -> bool:
        """Return whether a batch pod is refused, since it declares no native CPU or memory."""
        return bool(_COUNTED.intersection(self.hard)) and all(_takes_batch(scope) for scope in self.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as an operator meets it. A text in place of a list is the reason why it is not known."""

    url: str
    critical: Sequence[str] | str
    """Critical pods without requests, as NAMESPACE/NAME."""
    quotas: Sequence[Quota] | str
    installed: bool | str
    """Whether Slacktide is there, by its bridge's account."""
    critical_tried: str
    """The API server's refusal of a critical pod in a dry run; "": accepted, or not tried."""
    held: Sequence[str] | str
    """Rights of the bridge that are deleted, and kept by its finalizer: as KIND/NAME."""
    webhook_nodes: Sequence[str] | str
    """The node of each of the webhook's pods."""


def cluster_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Report all findings of the cluster."""
    yield _critical_pods(facts)
    yield _batch_quotas(facts)
    yield _critical_quota(facts)
    yield _held(facts)
    yield drain_finding(facts.webhook_nodes)


def admitting_critical(quotas: Sequence[Quota]) -> list[str]:
    """Return the names of Slacktide's quotas for pods of critical PriorityClasses."""
    return [
        one.name
        for one in quotas
        if one.namespace == SYSTEM
        and any(scope.name == "PriorityClass" and CRITICAL in scope.values for scope in one.scopes)
    ]


def _takes_batch(scope: Scope) -> bool:
    """Return whether the quota's scope covers batch pods, which are BestEffort to Kubernetes."""
    if scope.name == "PriorityClass":
        there = BATCH_CLASS in scope.values
        return {"In": there, "NotIn": not there, "DoesNotExist": False}.get(scope.operator, True)
    return scope.name not in {"NotBestEffort", "CrossNamespacePodAffinity"}


def _critical_pods(facts: ClusterFacts) -> Finding:
    check, needed = "cluster.critical-pods", "CPU requests for all critical pods"
    if isinstance(facts.critical, str):
        return unknown(check, facts.critical, needed, "list pods")
    if not facts.critical:
        return good(check, "all have requests", needed)
    advice = (
        "give these pods CPU requests, such as for kube-proxy: kubectl set resources daemonset/kube-proxy -n "
        "kube-system --requests=cpu=10m. Without requests they are in the best-effort tier. There the agent "
        "must limit the other pods one by one, so that idle pods waste their share"
    )
    return warned(check, f"without requests: {some(facts.critical)}", needed, advice)


def _batch_quotas(facts: ClusterFacts) -> Finding:
    check, needed = "cluster.batch-quota", "quotas that accept batch pods"
    if isinstance(facts.quotas, str):
        return unknown(check, facts.quotas, needed, "list resourcequotas")
    refusing = [f"{one.namespace}/{one.name}" for one in facts.quotas if one.refuses_batch()]
    if not refusing:
        return good(check, "no quota refuses batch pods", needed)
    advice = (
        "such a quota counts CPU or memory. Batch pods have only batch resources, so it rejects them with "
        "`must specify requests.cpu`. In namespaces of batch pods, recreate it with `scopes: [NotBestEffort]` "
        "in its spec (scopes cannot be changed)"
    )
    return warned(check, f"ResourceQuota {some(refusing)}", needed, advice)


def _critical_quota(facts: ClusterFacts) -> Finding:
    check, needed = "cluster.critical-quota", f"a quota that accepts critical pods in {SYSTEM}"
    name = "ResourceQuota slacktide-critical-pods"
    if isinstance(facts.quotas, str) or isinstance(facts.installed, str):
        why = facts.quotas if isinstance(facts.quotas, str) else str(facts.installed)
        return unknown(check, why, needed, f"list resourcequotas, and get serviceaccounts in {SYSTEM}")
    if admitted := admitting_critical(facts.quotas):
        return good(check, f"ResourceQuota {some(admitted)}", needed)
    if not facts.critical_tried:
        found = "accepted without a quota" if facts.installed else f"the installation creates {name}"
        return good(check, found, needed)
    advice = f"recreate {name}: kubectl apply -f deploy/kubernetes/base/critical-pods-quota.yaml"
    if "insufficient quota" in facts.critical_tried:
        found = f"{name} is missing, and critical PriorityClasses need it"
        return failed(check, found, needed, f"agent, bridge and webhook cannot be created: {advice}")
    return warned(check, f"{name} is missing; whether it is needed is unknown: {facts.critical_tried}", needed, advice)


def _held(facts: ClusterFacts) -> Finding:
    check, needed = "cluster.removal", "no rights of a removed bridge that wait for their finalizer"
    if isinstance(facts.held, str):
        return unknown(check, facts.held, needed, "get clusterroles, clusterrolebindings and serviceaccounts")
    if not facts.held:
        return good(check, "no such rights", needed)
    found = f"deleted, but the finalizer slacktide.io/batch-resources remains: {some(facts.held)}"
    advice = (
        "a running bridge removes batch resources from Nodes, then the finalizer, within a minute. If no "
        "bridge runs, its last log line says whether only the finalizer is left. Remove it, or both, by hand: "
        "docs/kubernetes.md#remove-it lists the commands"
    )
    return failed(check, found, needed, advice)


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
