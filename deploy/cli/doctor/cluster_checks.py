"""Checks whether Slacktide can be installed in a cluster, and whether its pods and batch pods would run. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence

from slacktide.deploy.cli.doctor.agent_checks import MINOR_FINE_GRAINED, MINOR_MIN
from slacktide.deploy.cli.doctor.facts import (
    ClusterFacts,
    InstalledFacts,
    Koordinator,
    Kubelet,
    Limits,
    Offer,
    PreflightFacts,
    Quota,
    WebhookClients,
)
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, unknown, warned
from slacktide.deploy.runtime.text import count
from slacktide.schemas.policy import refusal

SYSTEM = "slacktide-system"
CRITICAL = "system-cluster-critical"
EXAMPLE_CPU_MILLI = 400
"""The request of the pod of deploy/kubernetes/examples/batch-job.yaml."""
OWN_NODES = "colocation-agent=slacktide"
"""Label of Slacktide's nodes in a cluster with Koordinator."""
AGENT_CPU_MILLI, PARTS_CPU_MILLI = 40, 1_500
"""Slacktide's requests by the chart's defaults: per node, and for the other parts in total."""
_MINOR = re.compile(r"v?1\.(\d+)")
_RELEASE = re.compile(r"v?(1\.\d+\.\d+)")
_AWAY = (
    "check that pods can reach its port; it may be closed to clients outside the cluster: see the log of the "
    "chart's Job"
)


def cluster_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Report all findings of the cluster."""
    yield _none(
        "cluster.critical-pods",
        facts.critical,
        "CPU requests for all critical pods",
        right="list pods",
        none="all have requests",
        found="without requests: ",
        advice="give these pods CPU requests, such as for kube-proxy: kubectl set resources daemonset/kube-proxy -n "
        "kube-system --requests=cpu=10m. Without requests they are in the best-effort tier. There the agent "
        "must limit the other pods one by one, so that idle pods waste their share",
    )
    quotas: Sequence[str] | str = ""
    if isinstance(facts.quotas, str):
        quotas = facts.quotas
    else:
        quotas = [f"{one.namespace}/{one.name}" for one in facts.quotas if one.refuses_batch()]
    yield _none(
        "cluster.batch-quota",
        quotas,
        "quotas that accept batch pods",
        right="list resourcequotas",
        none="no quota refuses batch pods",
        found="ResourceQuota ",
        advice="such a quota counts CPU or memory. Batch pods have only batch resources, so it rejects them with "
        "`must specify requests.cpu`. In namespaces of batch pods, recreate it with `scopes: [NotBestEffort]` "
        "in its spec (scopes cannot be changed)",
    )
    yield _none(
        "cluster.free-quota",
        facts.free_quotas,
        "no quota for free",
        right="list namespaces",
        none="no namespace sets one",
        found="without effect: ",
        advice="free has no quota, and lives from what is idle: remove the annotation. To bound such work, use "
        "koord-batch with quota.slacktide.io/batch-cpu and batch-borrowing=never",
    )
    yield _critical_quota(facts)
    yield _none(
        "cluster.removal",
        facts.held,
        "no rights of a removed bridge that wait for their finalizer",
        right="get clusterroles, clusterrolebindings and serviceaccounts",
        none="no such rights",
        found="deleted, but the finalizer slacktide.io/batch-resources remains: ",
        advice="a running bridge removes batch resources from Nodes, then the finalizer, within a minute. If no "
        "bridge runs, its last log line says whether only the finalizer is left. Remove it, or both, by hand: "
        "docs/kubernetes.md#remove-it lists the commands",
        wrong=failed,
    )
    yield drain_finding(facts.webhook_nodes)
    yield webhook_clients_finding(facts.webhook_clients)


def _none(
    check: str,
    names: Sequence[str] | str,
    needed: str,
    *,
    right: str,
    none: str,
    found: str,
    advice: str,
    wrong: Callable[[str, str, str, str], Finding] = warned,
) -> Finding:
    """Report objects that should not be there; a text in place of their names: why they are not known."""
    if isinstance(names, str):
        return unknown(check, names, needed, right)
    return wrong(check, f"{found}{some(names)}", needed, advice) if names else good(check, none, needed)


def admitting_critical(quotas: Sequence[Quota]) -> list[str]:
    """Return the names of Slacktide's quotas for pods of critical PriorityClasses."""
    return [
        one.name
        for one in quotas
        if one.namespace == SYSTEM
        and any(scope.name == "PriorityClass" and CRITICAL in scope.values for scope in one.scopes)
    ]


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


def preflight_findings(facts: PreflightFacts) -> Iterator[Finding]:
    """Report all findings before an installation."""
    yield _version(facts.version)
    yield from _kubelets(facts.kubelets)
    yield _kube_scheduler(facts)
    yield _none(
        "cluster.latency-sensitive-pods",
        facts.latency_sensitive,
        "requests on pods of class LSE, LSR and LS",
        right="list pods",
        none="all have requests",
        found="without requests: ",
        advice="give them CPU and memory requests; without requests, the kubelet places them in the best-effort tier, "
        "where they are suppressed like batch pods",
    )
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
    if minor >= MINOR_MIN:
        return good(check, version, needed)
    advice = "upgrade the cluster: in older versions tokens do not contain their node, and admission policies differ"
    return failed(check, version, needed, advice)


def _kubelets(kubelets: Sequence[Kubelet] | str) -> Iterator[Finding]:
    check, needed = "cluster.kubelet-versions", f"kubelets of 1.{MINOR_FINE_GRAINED} or newer, which check nodes/pods"
    if isinstance(kubelets, str):
        yield unknown(check, kubelets, needed, "list nodes")
        return
    nodes = count(len(kubelets), "node")
    old = [one for one in kubelets if (_minor(one.version) or MINOR_FINE_GRAINED) < MINOR_FINE_GRAINED]
    if old:
        advice = (
            "set kubelet.access=proxy in the chart, or add deploy/kubernetes/components/kubelet-before-1.33: "
            "agents can list pods on these nodes only with nodes/proxy"
        )
        yield warned(check, some([f"{one.node} {one.version}" for one in old]), needed, advice)
    else:
        yield good(check, nodes, needed)
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
        yield failed(check, some(refused), needed, advice)
    elif away:
        yield warned(check, f"not reached: {some(away)}", needed, _AWAY)
    else:
        asked = sum(one.certificate != "not asked" for one in kubelets)
        yield good(check, f"{asked} of {nodes} checked", needed)


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
    if found.agents and not found.own_nodes + found.dry_run_nodes:
        advice = (
            f"remove Koordinator first, or run both on different nodes: label Slacktide's nodes {OWN_NODES}, "
            f"keep koordlet off them, and install with besideKoordinator=true, see {read}. Otherwise two agents "
            "would write the same cgroups"
        )
        return failed(check, f"koordlet runs: {some(list(found.agents))}", needed, advice)
    if found.agents:
        nodes = count(found.own_nodes, "node")
        dry_runs = f"; {count(found.dry_run_nodes, 'node')} in dry run" if found.dry_run_nodes else ""
        return good(check, f"koordlet runs, but not on the {nodes} of Slacktide{dry_runs}", needed)
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


def installed_findings(facts: InstalledFacts) -> Iterator[Finding]:
    """Report all findings of what is installed: an agent on each node, and a policy that is in force."""
    agents: Sequence[str] | str = ""
    if isinstance(facts.agents, str):
        agents = facts.agents
    else:
        agents = [f"{node}: {trouble}" for node, trouble in facts.agents.items() if trouble]
    yield _none(
        "cluster.agents",
        agents,
        "a ready agent on each node",
        right="get daemonsets, and list pods and nodes",
        none=f"ready on {count(len(facts.agents), 'node')}" if facts.agents else "not installed",
        found="",
        advice="these nodes offer no batch resources. `kubectl logs --namespace slacktide-system --previous POD` and "
        "`kubectl describe` of the pod show why. `helm --wait` does not wait for all agents: a tenth of them, at least "
        "one, may be missing",
        wrong=failed,
    )
    check, needed = "cluster.policy", "a valid ConfigMap slo-controller-config"
    if isinstance(facts.refused, str):
        yield unknown(check, facts.refused, needed, "get this ConfigMap")
    elif facts.refused is None:
        yield good(check, "valid, or absent", needed)
    else:
        advice = "correct the ConfigMap; `slacktide policy lint FILE` checks it"
        yield failed(check, refusal(facts.refused, facts.version), needed, advice)


def drain_finding(nodes: Sequence[str] | str) -> Finding:
    """Report on which nodes the webhook's pods run; a text: why this is not known."""
    check, needed = "cluster.drain", "webhook pods on two nodes, so that one can be drained"
    if isinstance(nodes, str):
        return unknown(check, nodes, needed, "list pods")
    there = sorted(set(nodes))
    if not there:
        return good(check, "no webhook yet", needed)
    if len(there) > 1:
        return good(check, f"on {len(there)} nodes", needed)
    advice = (
        f"while {there[0]} is drained, batch pods are created unchanged, and run as native pods. Before that, "
        "stop what creates batch pods, or set webhook.failClosed=true in the chart: docs/kubernetes.md#drain-a-node"
    )
    return warned(check, f"all on {there[0]}", needed, advice)


def webhook_clients_finding(found: WebhookClients | str) -> Finding:
    """Report whom the webhook answers, and whether API servers may present it a certificate."""
    check, needed = "cluster.webhook-clients", "API servers with a client certificate, if the webhook requires one"
    read = "docs/kubernetes.md#the-api-server-as-the-webhooks-only-client"
    if isinstance(found, str):
        return unknown(check, found, needed, "list pods")
    if found.required is None:
        return good(check, "no webhook yet", needed)
    without = sorted(name for name, configured in found.api_servers.items() if not configured)
    servers = f"{len(found.api_servers) - len(without)} of {count(len(found.api_servers), 'API server')}"
    configured = f"{servers} with an admission configuration" if found.api_servers else "API servers are not visible"
    if not found.required:
        return good(check, f"not required; {configured}", needed)
    if without:
        advice = (
            "these API servers present none, so the webhook refuses their requests: pods are created unchanged, and no "
            f"agent may evict. Give them one, see {read}, or set webhook.clientCertificates=false in the chart"
        )
        return failed(check, f"required, but without an admission configuration: {some(without)}", needed, advice)
    if not found.api_servers:
        advice = (
            f"the webhook's metric slacktide_webhook_clients_total and /fresh show whether they present one: {read}"
        )
        return warned(check, f"required; {configured}", needed, advice)
    return good(check, f"required; {configured}", needed)
