"""A cluster as an operator meets it, by a kubeconfig. Nothing is changed: what is created is a dry run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from slacktide.agents.cluster.bridge.removal import FINALIZER
from slacktide.agents.kubernetes import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    ApiError,
    ApiRefusedError,
    ApiServer,
    access,
)
from slacktide.deploy.cli.doctor.cluster_checks import SYSTEM, ClusterFacts, Quota, Scope
from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.inventory import Pod as Described
from slacktide.schemas.qos import LABEL_QOS
from slacktide.streams.decisions.spared_pods import is_spared

T = TypeVar("T")
NAME = "slacktide-bridge"
CRITICAL = "system-node-critical"
NOT_FOUND = 404


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    finalizers: list[str] = []
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _PodSpec(msgspec.Struct, frozen=True):
    priority: int | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    qos_class: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    def described(self) -> Described:
        return Described(
            uid="none",
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            priority=self.spec.priority,
            kube_qos=self.status.qos_class,
            qos_label=(self.metadata.labels or {}).get(LABEL_QOS),
        )


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
    metadata: _Metadata
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


async def gather(kubeconfig: Path) -> ClusterFacts:
    """Ask the cluster of a kubeconfig.

    Raises:
        ConfigError: the file cannot be used.

    """
    async with ApiServer(await access(kubeconfig), name="slacktide-doctor") as api:
        where = SYSTEM if await _there(api) else "default"
        return ClusterFacts(
            url=str(api.access.configuration.host),
            critical=await _or_why(lambda: _critical(api)),
            quotas=await _or_why(lambda: _quotas(api)),
            critical_tried=await _tried(api, where),
            critical_in=where,
            held=await _or_why(lambda: _held(api)),
        )


async def _or_why(ask: Callable[[], Awaitable[T]]) -> T | str:
    try:
        return await ask()
    except ApiError as exc:
        return str(exc)


async def _there(api: ApiServer) -> bool:
    try:
        found = await api.get(NAMESPACES, SYSTEM, _Object)
    except ApiError:
        return False
    return found.metadata.deletion_timestamp is None


async def _critical(api: ApiServer) -> list[str]:
    pods = (await api.list(PODS, _Pod)).items
    live = [pod for pod in pods if pod.status.phase not in ENDED_PHASES and is_spared(pod.described())]
    return sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in live)


async def _quotas(api: ApiServer) -> list[Quota]:
    return [one.described() for one in (await api.list(RESOURCE_QUOTAS, _Quota)).items]


async def _tried(api: ApiServer, namespace: str) -> str:
    """Why a critical pod is refused; "": it is not. No pod is created: a dry run."""
    container = {"name": "tried", "image": "none", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    account = {} if namespace == "default" else {"serviceAccountName": NAME}
    spec = {"priorityClassName": CRITICAL, "containers": [container], **account}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "slacktide-doctor-"}, "spec": spec}
    try:
        await api.create(PODS, body, _Object, namespace=namespace, dry_run=True)
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
            right = (await api.get(resource, NAME, _Object, namespace=namespace)).metadata
        except ApiRefusedError as exc:
            if exc.status == NOT_FOUND:
                continue
            raise
        if right.deletion_timestamp and FINALIZER in right.finalizers:
            held.append(f"{kind}/{NAME}")
    return held
