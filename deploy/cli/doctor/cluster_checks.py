"""Checks what prevents Slacktide's pods or batch pods from starting, and leftovers in a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, unknown, warned

SYSTEM = "slacktide-system"
_COUNTED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""CPU and memory resources of quotas. Under such a quota a pod must declare them; batch pods do not."""
BATCH_CLASS = "koord-batch"
CRITICAL = "system-node-critical"


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


def cluster_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Report all findings of the cluster."""
    yield _critical_pods(facts)
    yield _batch_quotas(facts)
    yield _critical_quota(facts)
    yield _held(facts)


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
        "bridge runs, do both by hand: docs/kubernetes.md#remove-it lists the commands"
    )
    return failed(check, found, needed, advice)
