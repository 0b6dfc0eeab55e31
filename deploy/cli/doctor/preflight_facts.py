"""Queries a cluster before an installation: its nodes, kubelets and other workloads. Read-only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from slacktide.agents.http import Access, CredentialsError, HttpError, Https
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import (
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    LIMIT_RANGES,
    MUTATING_WEBHOOKS,
    NODES,
    ApiError,
    ApiRefusedError,
    Resource,
)
from slacktide.agents.listening import bracketed
from slacktide.deploy.cli.doctor.cluster_checks import (
    AGENT_CPU_MILLI,
    PARTS_CPU_MILLI,
    SYSTEM,
    Koordinator,
    Kubelet,
    Limits,
    Offer,
    PreflightFacts,
)
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.kubernetes import listed, node_of
from slacktide.schemas.metric import Use
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.known_pods import is_spared
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad

T = TypeVar("T")
KUBELET_PORT = 10250
ASKED_MAX = 20
"""The maximum number of kubelets whose certificates are checked."""
OWN_LABEL, OWN = "colocation-agent", "slacktide"
KOORDINATOR_LABEL = "koord-app"
KOORDINATORS = (
    (CRDS, "nodeslos.slo.koordinator.sh"),
    (MUTATING_WEBHOOKS, "koordinator-mutating-webhook-configuration"),
)
"""Koordinator's objects besides pods. Slacktide never has these."""
NOT_FOUND = 404


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    finalizers: list[str] = []
    deletion_timestamp: str | None = None


class Object(msgspec.Struct, frozen=True):
    """An object of any kind."""

    metadata: Metadata


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class _Address(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class _Endpoint(msgspec.Struct, frozen=True):
    port: int = msgspec.field(name="Port", default=KUBELET_PORT)


class _Endpoints(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_endpoint: _Endpoint = _Endpoint()


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    addresses: list[_Address] | None = None
    daemon_endpoints: _Endpoints = _Endpoints()
    node_info: _Info = _Info()


class _Node(msgspec.Struct, frozen=True):
    metadata: Metadata
    status: _NodeStatus = _NodeStatus()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()


class _LimitSpec(msgspec.Struct, frozen=True):
    limits: list[dict[str, Any]]


class _LimitRange(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _LimitSpec


class _Container(msgspec.Struct, frozen=True):
    name: str
    image: str = ""


class _Containers(msgspec.Struct, frozen=True):
    containers: list[_Container]


class _Template(msgspec.Struct, frozen=True):
    spec: _Containers


class _Workload(msgspec.Struct, frozen=True):
    template: _Template


class _Deployment(msgspec.Struct, frozen=True):
    spec: _Workload


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and where it runs."""

    pod: Pod
    node: str
    labels: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.pod.namespace}/{self.pod.name}"


def placed(items: Sequence[Mapping[str, Any]]) -> list[Placed]:
    """Convert the API server's pods, without ended and unreadable ones."""
    seen = ((msgspec.convert(item, _Pod), listed(item, "pods").pods) for item in items)
    return [
        Placed(pod=pod, node=each.spec.node_name, labels=each.metadata.labels or {})
        for each, pods in seen
        for pod in pods
        if pod.phase not in ENDED_PHASES
    ]


def critical(pods: Sequence[Placed]) -> list[str]:
    """Return the critical pods in the best-effort tier."""
    return sorted(one.name for one in pods if is_spared(one.pod))


async def or_why(ask: Callable[[], Awaitable[T]]) -> T | str:
    """Return the answer, or why there is none."""
    try:
        return await ask()
    except ApiError as exc:
        return str(exc)


async def gather_preflight(
    api: ApiServer, pods: Sequence[Placed] | str, *, installed: bool, kubelet_insecure: bool
) -> PreflightFacts:
    """Query a cluster.

    Args:
        api: its API server.
        pods: all pods that have not ended; a text: why they are unknown.
        installed: Slacktide is installed, so that its requests are among those of the pods.
        kubelet_insecure: accept any certificate of a kubelet.
    """
    nodes = await or_why(lambda: _items(api, NODES))
    kubelets = nodes if isinstance(nodes, str) else await _kubelets(api, nodes, insecure=kubelet_insecure)
    return PreflightFacts(
        version=await _version(api),
        kubelets=kubelets,
        kube_scheduler=await _kube_scheduler(api),
        latency_sensitive=pods if isinstance(pods, str) else _latency_sensitive(pods),
        limits=await or_why(lambda: _limits(api)),
        koordinator=await or_why(lambda: _koordinator(api, nodes, pods)),
        offers=await _offers(api, nodes, pods, installed=installed),
    )


async def _items(api: ApiServer, resource: Resource) -> list[dict[str, Any]]:
    return (await api.list(resource, dict)).items


async def _version(api: ApiServer) -> str:
    try:
        return msgspec.json.decode(await api.text("/version"), type=_Version).git_version
    except (ApiError, msgspec.DecodeError):
        return ""


async def _kubelets(api: ApiServer, nodes: Sequence[Mapping[str, Any]], *, insecure: bool) -> list[Kubelet]:
    """Return all kubelets. The certificates of at most 20, evenly spaced by name, are checked."""
    ca = api.access.configuration.ssl_ca_cert
    seen = sorted((msgspec.convert(one, _Node) for one in nodes), key=lambda one: one.metadata.name)
    step = max(1, -(-len(seen) // ASKED_MAX))
    access = [
        None if at % step else Access(url=_url(node), ca=Path(ca) if ca else None, insecure=insecure)
        for at, node in enumerate(seen)
    ]
    return await asyncio.gather(*(asyncio.to_thread(_kubelet, *both) for both in zip(seen, access, strict=True)))


def _url(node: _Node) -> str:
    addresses = {one.type: one.address for one in node.status.addresses or ()}
    at = addresses.get("InternalIP", node.metadata.name)
    return f"https://{bracketed(at)}:{node.status.daemon_endpoints.kubelet_endpoint.port}"


def _kubelet(node: _Node, access: Access | None) -> Kubelet:
    """Return a kubelet, and whether an agent would accept its certificate. The content of its answer is ignored."""
    name, version = node.metadata.name, node.status.node_info.kubelet_version
    if access is None:
        return Kubelet(node=name, version=version, certificate="not asked")
    server = Https(access, port=KUBELET_PORT, untrusted=access.url)
    try:
        server.ask("/healthz")
    except CredentialsError as exc:
        return Kubelet(node=name, version=version, certificate="refused", trouble=str(exc))
    except HttpError as exc:
        return Kubelet(node=name, version=version, certificate="not reached", trouble=f"{access.url}: {exc}")
    finally:
        server.close()
    return Kubelet(node=name, version=version, certificate="accepted")


async def _kube_scheduler(api: ApiServer) -> str:
    try:
        found = await api.get(DEPLOYMENTS, "slacktide-scheduler", _Deployment, namespace=SYSTEM)
    except ApiError:
        return ""
    return next((one.image for one in found.spec.template.spec.containers if one.name == "kube-scheduler"), "")


def _latency_sensitive(pods: Sequence[Placed]) -> list[str]:
    named = ("LSE", "LSR", "LS")
    return sorted(one.name for one in pods if raw_qos(one.pod.qos_label) in named and one.pod.kube_qos == "BestEffort")


async def _limits(api: ApiServer) -> list[Limits]:
    found = (await api.list(LIMIT_RANGES, _LimitRange)).items
    return [
        Limits(
            namespace=one.metadata.namespace,
            name=one.metadata.name,
            fields={field: tuple(names) for field, names in limit.items() if isinstance(names, dict)},
        )
        for one in found
        for limit in one.spec.limits
    ]


async def _koordinator(
    api: ApiServer, nodes: Sequence[Mapping[str, Any]] | str, pods: Sequence[Placed] | str
) -> Koordinator | str:
    if isinstance(nodes, str) or isinstance(pods, str):
        return nodes if isinstance(nodes, str) else str(pods)
    seen = [msgspec.convert(one, _Node).metadata for one in nodes]
    own = {one.name for one in seen if (one.labels or {}).get(OWN_LABEL) == OWN}
    theirs = [one for one in pods if KOORDINATOR_LABEL in one.labels]
    agents = {one.name: one.node in own for one in theirs if one.labels[KOORDINATOR_LABEL] == "koordlet"}
    parts = [one.name for one in theirs if one.name not in agents]
    parts += [name for resource, name in KOORDINATORS if await is_there(api, resource, name)]
    return Koordinator(agents=agents, parts=parts, own_nodes=len(own))


async def is_there(api: ApiServer, resource: Resource, name: str, namespace: str = "") -> bool:
    """Return whether an object is there. Raises ApiError if it is not known."""
    try:
        await api.get(resource, name, Object, namespace=namespace)
    except ApiRefusedError as exc:
        if exc.status == NOT_FOUND:
            return False
        raise
    return True


async def _offers(
    api: ApiServer, nodes: Sequence[Mapping[str, Any]] | str, pods: Sequence[Placed] | str, *, installed: bool
) -> list[Offer] | str:
    if isinstance(nodes, str) or isinstance(pods, str):
        return nodes if isinstance(nodes, str) else str(pods)
    colocation = await _colocation(api)
    try:
        facts = [node_of(one, "nodes").facts for one in nodes]
    except ConfigError as exc:
        return str(exc)

    def milli(of: NodeLoad) -> int:
        return min(batch_resource(of, colocation).cpu_milli, of.facts.capacity.cpu_milli or 0)

    ours_milli = 0 if installed else AGENT_CPU_MILLI + PARTS_CPU_MILLI // max(len(facts), 1)
    offers = []
    for one in facts:
        bare = NodeLoad(facts=one, pods=[], metrics=[], system=Use(cpu_milli=0, mem_bytes=0))
        there = [each.pod for each in pods if each.node == one.name]
        by_requests = max(milli(msgspec.structs.replace(bare, pods=there)) - ours_milli, 0)
        offers.append(Offer(node=one.name, most_milli=milli(bare), by_requests_milli=by_requests))
    return offers


async def _colocation(api: ApiServer) -> Colocation:
    """Return the cluster's strategy of the policy in force; without a policy the defaults."""
    try:
        document = await api.get(CONFIGMAPS, "slo-controller-config", dict, namespace="koordinator-system")
        return parse(document, "slo-controller-config").policy.colocation
    except (ApiError, ConfigError):
        return DEFAULT.colocation
