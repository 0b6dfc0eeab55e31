"""Queries a cluster as an operator, by a kubeconfig. Objects are created only in dry runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from slacktide.agents.cluster.bridge.removal import FINALIZER
from slacktide.agents.kubernetes.access import access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    ApiError,
    ApiRefusedError,
)
from slacktide.deploy.cli.doctor import preflight_facts
from slacktide.deploy.cli.doctor.cluster_checks import (
    CRITICAL,
    SYSTEM,
    ClusterFacts,
    PreflightFacts,
    Quota,
    Scope,
    admitting_critical,
)
from slacktide.deploy.cli.doctor.preflight_facts import (
    NOT_FOUND,
    Metadata,
    Object,
    Placed,
    critical,
    is_there,
    or_why,
    placed,
)

NAME = "slacktide-bridge"
COMPONENT = "app.kubernetes.io/component"


class _Expression(msgspec.Struct, frozen=True, rename="camel"):
    scope_name: str
    operator: str = "Exists"
    values: list[str] | None = None


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[_Expression] | None = None


class _QuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    hard: dict[str, str] | None = None
    scopes: list[str] | None = None
    scope_selector: _Selector | None = None


class _Quota(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _QuotaSpec = _QuotaSpec()

    def described(self) -> Quota:
        selector = self.spec.scope_selector or _Selector()
        given = [Scope(name=one) for one in self.spec.scopes or ()]
        chosen = [
            Scope(name=one.scope_name, operator=one.operator, values=one.values or ())
            for one in selector.match_expressions or ()
        ]
        return Quota(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            hard=tuple(self.spec.hard or ()),
            scopes=(*given, *chosen),
        )


async def gather(kubeconfig: Path | None, *, kubelet_insecure: bool = False) -> tuple[ClusterFacts, PreflightFacts]:
    """Query the cluster of a kubeconfig; None: of $KUBECONFIG, of the pod's account, or of ``~/.kube/config``.

    Raises:
        ConfigError: the file cannot be used.
    """
    async with ApiServer(await access(kubeconfig), name="slacktide-doctor") as api:
        pods, quotas = await or_why(lambda: _pods(api)), await or_why(lambda: _quotas(api))
        installed = await or_why(lambda: is_there(api, SERVICE_ACCOUNTS, NAME, namespace=SYSTEM))
        needs_quota = installed is True and not isinstance(quotas, str) and not admitting_critical(quotas)
        cluster = ClusterFacts(
            url=str(api.access.configuration.host),
            critical=pods if isinstance(pods, str) else critical(pods),
            quotas=quotas,
            installed=installed,
            critical_tried=await _tried(api) if needs_quota else "",
            held=await or_why(lambda: _held(api)),
            webhook_nodes=pods if isinstance(pods, str) else _webhook_nodes(pods),
        )
        return cluster, await preflight_facts.gather_preflight(
            api, pods, installed=installed is True, kubelet_insecure=kubelet_insecure
        )


async def _pods(api: ApiServer) -> list[Placed]:
    return placed((await api.list(PODS, dict)).items)


def _webhook_nodes(pods: list[Placed]) -> list[str]:
    return [one.node for one in pods if one.pod.namespace == SYSTEM and one.labels.get(COMPONENT) == "webhook"]


async def _quotas(api: ApiServer) -> list[Quota]:
    return [one.described() for one in (await api.list(RESOURCE_QUOTAS, _Quota)).items]


async def _tried(api: ApiServer) -> str:
    """Return why a critical pod of the bridge is refused in a dry run; "": it is accepted."""
    container = {"name": "tried", "image": "none", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    spec = {"priorityClassName": CRITICAL, "containers": [container], "serviceAccountName": NAME}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "slacktide-doctor-"}, "spec": spec}
    try:
        await api.create(PODS, body, Object, namespace=SYSTEM, dry_run=True)
    except ApiError as exc:
        return str(exc)
    return ""


async def _held(api: ApiServer) -> list[str]:
    rights = (
        ("serviceaccount", SERVICE_ACCOUNTS, SYSTEM),
        ("clusterrole", CLUSTER_ROLES, ""),
        ("clusterrolebinding", CLUSTER_ROLE_BINDINGS, ""),
    )
    held = []
    for kind, resource, namespace in rights:
        try:
            right = (await api.get(resource, NAME, Object, namespace=namespace)).metadata
        except ApiRefusedError as exc:
            if exc.status == NOT_FOUND:
                continue
            raise
        if right.deletion_timestamp and FINALIZER in right.finalizers:
            held.append(f"{kind}/{NAME}")
    return held
