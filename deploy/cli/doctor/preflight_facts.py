"""Queries a cluster before an installation: its nodes, kubelets and other workloads. Read-only."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
    NOT_FOUND,
    ApiError,
    IgnoreStatus,
    Resource,
)
from slacktide.agents.listening import bracketed
from slacktide.deploy.cli.doctor.cluster_checks import AGENT_CPU_MILLI, PARTS_CPU_MILLI, SYSTEM
from slacktide.deploy.cli.doctor.facts import Koordinator, Kubelet, Limits, Offer, PreflightFacts
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import DRY_RUN, ENDED_PHASES, LABEL_AGENT, OWN, Pod
from slacktide.schemas.kubernetes import listed, node_of
from slacktide.schemas.metric import Use
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad

T = TypeVar("T")
KUBELET_PORT = 10250
ASKED_MAX = 20
"""The maximum number of kubelets whose certificates are checked."""
KOORDINATOR_LABEL = "koord-app"
KOORDINATORS = (
    (CRDS, "nodeslos.slo.koordinator.sh"),
    (MUTATING_WEBHOOKS, "koordinator-mutating-webhook-configuration"),
)
"""Koordinator's objects besides pods. Slacktide never has these."""


def field(document: Any, *path: str) -> Any:
    """Return a nested field of an object; None: it is absent."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


class Placed(NamedTuple):
    """A pod, and where it runs."""

    pod: Pod
    name: str
    """As NAMESPACE/NAME."""
    node: str
    labels: Mapping[str, str]


def placed(items: Iterable[Mapping[str, Any]]) -> list[Placed]:
    """Convert the API server's pods, without ended and unreadable ones."""
    return [
        Placed(
            pod,
            name=f"{pod.namespace}/{pod.name}",
            node=field(item, "spec", "nodeName") or "",
            labels=field(item, "metadata", "labels") or {},
        )
        for item in items
        for pod in listed(item, "pods").pods
        if pod.phase not in ENDED_PHASES
    ]


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
    nodes = await or_why(lambda: items_of(api, NODES))
    try:
        deployment = await api.get(DEPLOYMENTS, "slacktide-scheduler", dict, namespace=SYSTEM)
    except ApiError:
        deployment = {}
    containers = field(deployment, "spec", "template", "spec", "containers") or ()
    try:
        version = field(msgspec.json.decode(await api.text("/version")), "gitVersion") or ""
    except (ApiError, *MALFORMED):
        version = ""
    latency_sensitive: list[str] | str = ""
    if isinstance(pods, str):
        latency_sensitive = pods
    else:
        best_effort = (one for one in pods if one.pod.kube_qos == "BestEffort")
        latency_sensitive = sorted(
            one.name for one in best_effort if raw_qos(one.pod.qos_label) in {"LSE", "LSR", "LS"}
        )
    return PreflightFacts(
        version=version,
        kubelets=nodes if isinstance(nodes, str) else await _kubelets(api, nodes, insecure=kubelet_insecure),
        kube_scheduler=next((one.get("image", "") for one in containers if one["name"] == "kube-scheduler"), ""),
        latency_sensitive=latency_sensitive,
        limits=await or_why(lambda: _limits(api)),
        koordinator=await or_why(lambda: _koordinator(api, nodes, pods)),
        offers=await _offers(api, nodes, pods, installed=installed),
    )


async def items_of(api: ApiServer, resource: Resource) -> list[dict[str, Any]]:
    """Return all objects of a kind."""
    return (await api.list(resource, dict)).items


async def _kubelets(api: ApiServer, nodes: Sequence[Mapping[str, Any]], *, insecure: bool) -> list[Kubelet]:
    """Return all kubelets. The certificates of at most 20, evenly spaced by name, are checked."""
    ca = api.access.configuration.ssl_ca_cert
    step = max(1, -(-len(nodes) // ASKED_MAX))

    def kubelet(node: Mapping[str, Any], *, asked: bool) -> Kubelet:
        """Return a kubelet, and whether an agent would accept its certificate. Its answer's content is ignored."""
        name, status = node["metadata"]["name"], node.get("status")
        version = field(status, "nodeInfo", "kubeletVersion") or ""
        if not asked:
            return Kubelet(node=name, version=version, certificate="not asked")
        addresses = {one["type"]: one["address"] for one in field(status, "addresses") or ()}
        port = field(status, "daemonEndpoints", "kubeletEndpoint", "Port") or KUBELET_PORT
        url = f"https://{bracketed(addresses.get('InternalIP', name))}:{port}"
        server = Https(
            Access(url=url, ca=Path(ca) if ca else None, insecure=insecure), port=KUBELET_PORT, untrusted=url
        )
        try:
            server.ask("/healthz")
        except CredentialsError as exc:
            return Kubelet(node=name, version=version, certificate="refused", trouble=str(exc))
        except HttpError as exc:
            return Kubelet(node=name, version=version, certificate="not reached", trouble=f"{url}: {exc}")
        finally:
            server.close()
        return Kubelet(node=name, version=version, certificate="accepted")

    by_name = sorted(nodes, key=lambda one: str(one["metadata"]["name"]))
    asking = (asyncio.to_thread(kubelet, node, asked=at % step == 0) for at, node in enumerate(by_name))
    return await asyncio.gather(*asking)


async def _limits(api: ApiServer) -> list[Limits]:
    return [
        Limits(
            namespace=one["metadata"].get("namespace", ""),
            name=one["metadata"]["name"],
            fields={name: tuple(amounts) for name, amounts in limit.items() if isinstance(amounts, dict)},
        )
        for one in await items_of(api, LIMIT_RANGES)
        for limit in field(one, "spec", "limits") or ()
    ]


async def _koordinator(
    api: ApiServer, nodes: Sequence[Mapping[str, Any]] | str, pods: Sequence[Placed] | str
) -> Koordinator | str:
    if isinstance(nodes, str) or isinstance(pods, str):
        return nodes if isinstance(nodes, str) else str(pods)
    labels = {one["metadata"]["name"]: field(one, "metadata", "labels", LABEL_AGENT) for one in nodes}
    own = {name for name, label in labels.items() if label == OWN}
    theirs = [one for one in pods if KOORDINATOR_LABEL in one.labels]
    agents = {one.name: one.node in own for one in theirs if one.labels[KOORDINATOR_LABEL] == "koordlet"}
    parts = [one.name for one in theirs if one.name not in agents]
    parts += [name for resource, name in KOORDINATORS if await is_there(api, resource, name)]
    dry_runs = sum(label == DRY_RUN for label in labels.values())
    return Koordinator(agents=agents, parts=parts, own_nodes=len(own), dry_run_nodes=dry_runs)


async def is_there(api: ApiServer, resource: Resource, name: str, namespace: str = "") -> bool:
    """Return whether an object is there. Raises ApiError if it is not known."""
    with IgnoreStatus(NOT_FOUND):
        await api.get(resource, name, dict, namespace=namespace)
        return True
    return False


async def _offers(
    api: ApiServer, nodes: Sequence[Mapping[str, Any]] | str, pods: Sequence[Placed] | str, *, installed: bool
) -> list[Offer] | str:
    if isinstance(nodes, str) or isinstance(pods, str):
        return nodes if isinstance(nodes, str) else str(pods)
    try:
        document = await api.get(CONFIGMAPS, "slo-controller-config", dict, namespace="koordinator-system")
        colocation = parse(document, "slo-controller-config").policy.colocation
    except (ApiError, ConfigError):  # none is in force
        colocation = DEFAULT.colocation
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
