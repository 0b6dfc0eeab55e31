"""What each part may ask of the API server: all that it needs, and nothing beside."""

from dataclasses import dataclass
from typing import Any

import pytest

from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import SYSTEM

pytestmark = pytest.mark.cluster

OPERATORS = "koordinator-system"
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing to do to the API."""

    verb: str
    resource: str
    """``nodes/status``, ``nodemetrics.slo.koordinator.sh``."""
    namespace: str = ""
    name: str = ""

    def attributes(self) -> Json:
        resource, _, sub = self.resource.partition("/")
        plural, _, group = resource.partition(".")
        return {
            "verb": self.verb,
            "group": group,
            "resource": plural,
            "subresource": sub,
            "namespace": self.namespace,
            "name": self.name,
        }

    def __str__(self) -> str:
        return " ".join(part for part in (self.verb, self.resource, self.namespace, self.name) if part)


CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
LEASES, SECRETS = "leases.coordination.k8s.io", "secrets"
PROFILES, METRICS = "clustercolocationprofiles.config.koordinator.sh", "nodemetrics.slo.koordinator.sh"
WORKLOADS = ("daemonsets", "deployments")
ADMISSION, POLICY = "admissionregistration.k8s.io", "slo-controller-config"
RBAC = "rbac.authorization.k8s.io"
OWN_RIGHTS = (f"clusterroles.{RBAC}", f"clusterrolebindings.{RBAC}", "serviceaccounts")
NEEDED = {
    "slacktide-agent": [
        Act(verb="get", resource="nodes/pods", name="node-1"),
        Act(verb="create", resource="pods/eviction", namespace="batch"),
        Act(verb="create", resource="events", namespace="batch"),
        Act(verb="get", resource="daemonsets.apps", namespace=SYSTEM, name="slacktide-agent"),
        Act(verb="get", resource="namespaces", namespace=SYSTEM, name=SYSTEM),
        Act(verb="watch", resource="nodes", name="node-1"),
    ],
    "slacktide-bridge": [
        *(Act(verb=verb, resource="nodes") for verb in ("get", "list", "watch")),
        *(Act(verb=verb, resource="pods") for verb in ("list", "watch")),
        Act(verb="create", resource="events", namespace="batch"),
        Act(verb="patch", resource="nodes/status", name="node-1"),
        Act(verb="create", resource=METRICS),
        Act(verb="patch", resource="nodemetrics.slo.koordinator.sh/status", name="node-1"),
        *(Act(verb=verb, resource="configmaps", namespace=OPERATORS, name=POLICY) for verb in ("get", "list", "watch")),
        Act(verb="create", resource=LEASES, namespace=SYSTEM),
        *(Act(verb=verb, resource=LEASES, namespace=SYSTEM, name="slacktide-bridge") for verb in ("get", "update")),
        Act(verb="get", resource="deployments.apps", namespace=SYSTEM, name="slacktide-bridge"),
        Act(verb="get", resource="namespaces", namespace=SYSTEM, name=SYSTEM),
        *(Act(verb=verb, resource=kind, name="slacktide-bridge") for kind in OWN_RIGHTS for verb in ("get", "patch")),
    ],
    "slacktide-webhook": [
        *(Act(verb=verb, resource=PROFILES) for verb in ("list", "watch")),
        *(Act(verb=verb, resource="namespaces") for verb in ("get", "list", "watch")),
        *(Act(verb=verb, resource="priorityclasses.scheduling.k8s.io") for verb in ("list", "watch")),
        *(Act(verb=verb, resource="pods", namespace="batch") for verb in ("get", "list")),
        Act(verb="create", resource="events", namespace="batch"),
        Act(verb="create", resource=SECRETS, namespace=SYSTEM),
        *(
            Act(verb=verb, resource=SECRETS, namespace=SYSTEM, name="slacktide-webhook-tls")
            for verb in ("get", "patch")
        ),
        *(
            Act(verb=verb, resource=f"{kind}.{ADMISSION}", name="slacktide")
            for kind in CONFIGURATIONS
            for verb in ("get", "patch")
        ),
    ],
    "slacktide-stream": [],
}
BEYOND = [
    *(Act(verb=verb, resource="pods", namespace=SYSTEM) for verb in ("get", "list", "watch", "create", "delete")),
    *(Act(verb=verb, resource="nodes") for verb in ("get", "list", "watch", "create", "update", "patch", "delete")),
    *(Act(verb=verb, resource="nodes/proxy") for verb in ("get", "create")),
    *(Act(verb="get", resource=f"nodes/{sub}") for sub in ("log", "stats", "metrics", "configz", "pods")),
    *(Act(verb=verb, resource="nodes/status") for verb in ("get", "update", "patch")),
    *(Act(verb=verb, resource=SECRETS, namespace=SYSTEM) for verb in ("get", "list", "watch", "patch", "delete")),
    *(Act(verb="get", resource=SECRETS, namespace=space, name="other") for space in (SYSTEM, OPERATORS, "default")),
    Act(verb="create", resource=SECRETS, namespace="default"),
    *(Act(verb=verb, resource="configmaps", namespace=OPERATORS) for verb in ("get", "list", "watch")),
    Act(verb="patch", resource="configmaps", namespace=OPERATORS, name=POLICY),
    Act(verb="get", resource="configmaps", namespace="default", name=POLICY),
    Act(verb="update", resource=LEASES, namespace=SYSTEM, name="other"),
    Act(verb="update", resource=LEASES, namespace="kube-node-lease", name="node-1"),
    *(Act(verb=verb, resource=METRICS) for verb in ("get", "list", "watch", "create", "delete")),
    *(Act(verb=verb, resource=PROFILES) for verb in ("list", "watch", "create", "update", "patch", "delete")),
    *(
        Act(verb=verb, resource=f"{kind}.{ADMISSION}")
        for kind in CONFIGURATIONS
        for verb in ("list", "patch", "create")
    ),
    *(Act(verb="patch", resource=f"{kind}.{ADMISSION}", name="other") for kind in CONFIGURATIONS),
    Act(verb="create", resource="pods/eviction", namespace="batch"),
    Act(verb="create", resource="pods/exec", namespace=SYSTEM),
    Act(verb="create", resource="serviceaccounts/token", namespace=SYSTEM),
    Act(verb="create", resource="events", namespace="batch"),
    Act(verb="list", resource="namespaces"),
    *(Act(verb=verb, resource="namespaces", namespace=SYSTEM, name=SYSTEM) for verb in ("patch", "delete")),
    *(
        Act(verb=verb, resource=f"{kind}.apps", namespace=SYSTEM)
        for kind in WORKLOADS
        for verb in ("get", "list", "patch")
    ),
    *(Act(verb="get", resource=f"{kind}.apps", namespace=SYSTEM, name="slacktide-webhook") for kind in WORKLOADS),
    *(Act(verb="get", resource=f"{kind}.apps", namespace="default", name="slacktide-agent") for kind in WORKLOADS),
    *(Act(verb=verb, resource=f"clusterroles.{RBAC}") for verb in ("get", "patch", "bind", "escalate")),
    *(Act(verb=verb, resource=kind, name="slacktide-bridge") for kind in OWN_RIGHTS for verb in ("update", "delete")),
    *(Act(verb="patch", resource=kind, name="slacktide-agent") for kind in OWN_RIGHTS),
    Act(verb="impersonate", resource="users"),
]
"""What nobody needs, or one part alone."""
OF_THESE = {
    "slacktide-agent": {
        "watch nodes",
        "get nodes/pods",
        "create pods/eviction batch",
        "create events batch",
    },
    "slacktide-bridge": {
        *(f"{verb} nodes" for verb in ("get", "list", "watch")),
        *(f"{verb} pods {SYSTEM}" for verb in ("list", "watch")),
        "patch nodes/status",
        f"create {METRICS}",
        "create events batch",
    },
    "slacktide-webhook": {
        *(f"{verb} pods {SYSTEM}" for verb in ("get", "list")),
        *(f"{verb} {PROFILES}" for verb in ("list", "watch")),
        "list namespaces",
        "create events batch",
    },
    "slacktide-stream": set(),
}


def may(server: ApiServer, account: str, act: Act) -> bool:
    user = f"system:serviceaccount:{SYSTEM}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"]
    review = {"spec": {"user": user, "groups": groups, "resourceAttributes": act.attributes()}}
    told = server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert not told["status"].get("evaluationError")
    return bool(told["status"]["allowed"])


@pytest.mark.parametrize("account", NEEDED)
def test_a_part_may_do_what_it_does(applied: ApiServer, account: str) -> None:
    lacking = [str(act) for act in NEEDED[account] if not may(applied, account, act)]

    assert lacking == []


@pytest.mark.parametrize("account", NEEDED)
def test_a_part_may_nothing_else(applied: ApiServer, account: str) -> None:
    assert {str(act) for act in BEYOND if may(applied, account, act)} == OF_THESE[account]
