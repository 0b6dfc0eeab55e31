"""Kinds of objects, with their API paths."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of objects."""

    group: str = ""
    """"": the core group."""
    version: str = "v1"
    plural: str

    @property
    def api_version(self) -> str:
        """As in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, *, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path of one object or a collection; without namespace: of all namespaces."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, sub) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NODES = Resource(plural="nodes")
NAMESPACES = Resource(plural="namespaces")
PODS = Resource(plural="pods")
CONFIGMAPS = Resource(plural="configmaps")
RESOURCE_QUOTAS = Resource(plural="resourcequotas")
LIMIT_RANGES = Resource(plural="limitranges")
DEPLOYMENTS = Resource(group="apps", plural="deployments")
CRDS = Resource(group="apiextensions.k8s.io", plural="customresourcedefinitions")
MUTATING_WEBHOOKS = Resource(group="admissionregistration.k8s.io", plural="mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = Resource(group="admissionregistration.k8s.io", plural="validatingwebhookconfigurations")
SECRETS = Resource(plural="secrets")
SERVICE_ACCOUNTS = Resource(plural="serviceaccounts")
JOBS = Resource(group="batch", plural="jobs")
EVENTS = Resource(group="events.k8s.io", plural="events")
CLUSTER_ROLES = Resource(group="rbac.authorization.k8s.io", plural="clusterroles")
CLUSTER_ROLE_BINDINGS = Resource(group="rbac.authorization.k8s.io", plural="clusterrolebindings")
LEASES = Resource(group="coordination.k8s.io", plural="leases")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", plural="priorityclasses")
NODE_METRICS = Resource(group="slo.koordinator.sh", version="v1alpha1", plural="nodemetrics")
NODE_RESOURCE_TOPOLOGIES = Resource(group="topology.node.k8s.io", version="v1alpha2", plural="noderesourcetopologies")
PROFILES = Resource(group="config.koordinator.sh", version="v1alpha1", plural="clustercolocationprofiles")
TOKEN_REVIEWS = Resource(group="authentication.k8s.io", plural="tokenreviews")
