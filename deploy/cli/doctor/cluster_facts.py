"""Queries a cluster as an operator, by a kubeconfig, and Kafka. Objects are created only in dry runs."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from slacktide.agents.cluster.bridge.removal import FINALIZER
from slacktide.agents.cluster.webhook.mutation import changed_ms
from slacktide.agents.kubernetes.access import access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    NOT_FOUND,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    ApiError,
    IgnoreStatus,
    Resource,
)
from slacktide.agents.publisher import read_policy
from slacktide.deploy.cli.doctor.cluster_checks import CRITICAL, SYSTEM, admitting_critical
from slacktide.deploy.cli.doctor.facts import ClusterFacts, InstalledFacts, PreflightFacts, Quota, Scope, WebhookClients
from slacktide.deploy.cli.doctor.preflight_facts import field, gather_preflight, is_there, items_of, or_why, placed
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import ConfigError, LogError
from slacktide.schemas.policy import DEFAULT, RefusedFile, parse, refused_file
from slacktide.streams.decisions.admission.namespace_quota import in_vain
from slacktide.streams.decisions.known_pods import is_spared

NAME = "slacktide-bridge"
AGENT_SETS = ("slacktide-agent", "slacktide-agent-dry-run")
"""DaemonSets of agents; the second one beside Koordinator only."""
RIGHTS = (
    ("serviceaccount", SERVICE_ACCOUNTS, SYSTEM),
    ("clusterrole", CLUSTER_ROLES, ""),
    ("clusterrolebinding", CLUSTER_ROLE_BINDINGS, ""),
)
"""The rights of the bridge."""
COMPONENT = "app.kubernetes.io/component"
DAEMON_SETS = Resource(group="apps", plural="daemonsets")
AGENTS = f"app.kubernetes.io/name=slacktide,{COMPONENT} in (agent,agent-dry-run)"
CONFIG_MAP, CONFIG_MAP_NAMESPACES = "slo-controller-config", (SYSTEM, "koordinator-system")
"""Beside Koordinator, Slacktide has a ConfigMap of its own."""


async def gather(kubeconfig: Path | None, *, kubelet_insecure: bool = False) -> tuple[ClusterFacts, PreflightFacts]:
    """Query the cluster of a kubeconfig; None: of $KUBECONFIG, of the pod's account, or of ``~/.kube/config``.

    Raises ConfigError if the file cannot be used.
    """
    async with ApiServer(await access(kubeconfig), name="slacktide-doctor") as api:
        items, quotas = await or_why(lambda: items_of(api, PODS)), await or_why(lambda: _quotas(api))
        pods = items if isinstance(items, str) else placed(items)
        installed = await or_why(lambda: is_there(api, SERVICE_ACCOUNTS, NAME, namespace=SYSTEM))
        needs_quota = installed is True and not isinstance(quotas, str) and not admitting_critical(quotas)
        critical: list[str] | str = ""
        webhook_nodes: list[str] | str = ""
        if isinstance(pods, str):
            critical = webhook_nodes = pods
        else:
            critical = sorted(one.name for one in pods if is_spared(one.pod))
            ours = [one for one in pods if one.pod.namespace == SYSTEM]
            webhook_nodes = [one.node for one in ours if one.labels.get(COMPONENT) == "webhook"]
        cluster = ClusterFacts(
            url=str(api.access.configuration.host),
            critical=critical,
            quotas=quotas,
            free_quotas=await or_why(lambda: _free_quotas(api)),
            installed=installed,
            critical_tried=await _tried(api) if needs_quota else "",
            held=await or_why(lambda: _held(api)),
            webhook_nodes=webhook_nodes,
            webhook_clients=items if isinstance(items, str) else _webhook_clients(items),
        )
        return cluster, await gather_preflight(
            api, pods, installed=installed is True, kubelet_insecure=kubelet_insecure
        )


def _webhook_clients(items: Iterable[Mapping[str, Any]]) -> WebhookClients:
    api_servers, required = {}, []
    for item in items:
        namespace, labels = item["metadata"]["namespace"], field(item, "metadata", "labels") or {}
        flags = [
            word.partition("=")[0]
            for container in field(item, "spec", "containers") or ()
            for word in [*(container.get("command") or ()), *(container.get("args") or ())]
        ]
        if namespace == "kube-system" and labels.get("component") == "kube-apiserver":
            api_servers[item["metadata"]["name"]] = "--admission-control-config-file" in flags
        elif namespace == SYSTEM and labels.get(COMPONENT) == "webhook":
            required.append("--client-ca" in flags)
    return WebhookClients(required=any(required) if required else None, api_servers=api_servers)


async def _quotas(api: ApiServer) -> list[Quota]:
    found = []
    for one in await items_of(api, RESOURCE_QUOTAS):
        spec = one.get("spec")
        scopes = [Scope(name=name) for name in field(spec, "scopes") or ()]
        scopes += [
            Scope(name=each["scopeName"], operator=each.get("operator", "Exists"), values=each.get("values") or ())
            for each in field(spec, "scopeSelector", "matchExpressions") or ()
        ]
        name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
        found.append(Quota(namespace=namespace, name=name, hard=tuple(field(spec, "hard") or ()), scopes=scopes))
    return found


async def _free_quotas(api: ApiServer) -> list[str]:
    return [
        f"{one['metadata']['name']} {name}"
        for one in await items_of(api, NAMESPACES)
        for name in in_vain(field(one, "metadata", "annotations") or {})
    ]


async def _tried(api: ApiServer) -> str:
    """Return why a critical pod of the bridge is refused in a dry run; "": it is accepted."""
    container = {"name": "tried", "image": "none", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    spec = {"priorityClassName": CRITICAL, "containers": [container], "serviceAccountName": NAME}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "slacktide-doctor-"}, "spec": spec}
    try:
        await api.create(PODS, body, dict, namespace=SYSTEM, dry_run=True)
    except ApiError as exc:
        return str(exc)
    return ""


async def _held(api: ApiServer) -> list[str]:
    held = []
    for kind, resource, namespace in RIGHTS:
        with IgnoreStatus(NOT_FOUND):
            metadata = (await api.get(resource, NAME, dict, namespace=namespace))["metadata"]
            if metadata.get("deletionTimestamp") and FINALIZER in (metadata.get("finalizers") or ()):
                held.append(f"{kind}/{NAME}")
    return held


async def gather_installed(kubeconfig: Path | None, bootstrap: Cluster | None) -> InstalledFacts:
    """Query the cluster of a kubeconfig, and Kafka for the policy in force; without ``bootstrap`` it is unknown.

    Raises ConfigError if the file cannot be used.
    """
    async with ApiServer(await access(kubeconfig), name="slacktide-doctor") as api:
        agents, refused = await or_why(lambda: _agents(api)), await or_why(lambda: _refused(api))
    policy = DEFAULT
    if bootstrap is not None:
        with suppress(LogError):  # other checks report it
            policy = (await read_policy(bootstrap)).policy
    if isinstance(refused, RefusedFile) and policy is not DEFAULT:
        return InstalledFacts(agents=agents, refused=policy.refused or refused, version=policy.version)
    return InstalledFacts(agents=agents, refused=refused)


async def _agents(api: ApiServer) -> dict[str, str]:
    sets = [name for name in AGENT_SETS if await is_there(api, DAEMON_SETS, name, namespace=SYSTEM)]
    if not sets:
        return {}
    daemons = [await api.get(DAEMON_SETS, name, dict, namespace=SYSTEM) for name in sets]
    pods = (await api.list(PODS, dict, namespace=SYSTEM, labels=AGENTS)).items
    troubles = [(_node(pod.get("spec")), _trouble(pod.get("status"))) for pod in pods]
    ready = {node for node, trouble in troubles if not trouble}
    found = {node: trouble for node, trouble in troubles if node not in ready} | dict.fromkeys(ready, "")
    wanted = sum(field(one, "status", "desiredNumberScheduled") or 0 for one in daemons)
    if lacking := max(0, wanted - len(found)):
        # Its controller creates a pod for each node that it selects. Which nodes these are, only it knows.
        nodes = {node["metadata"]["name"] for node in await items_of(api, NODES)}
        found |= dict.fromkeys(sorted(nodes - found.keys())[:lacking], "no pod; see the DaemonSet's Events")
    return dict(sorted(found.items()))


def _node(spec: object) -> str:
    """Return where an agent's pod runs, or shall run by the affinity that its DaemonSet gave it."""

    def named(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            if value.get("key") == "metadata.name":
                yield from value.get("values") or ()
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from named(each)

    return field(spec, "nodeName") or next(named(field(spec, "affinity")), "a node")


def _trouble(status: object) -> str:
    """Return why a pod is not ready; "": it is."""
    conditions = {one["type"]: one for one in field(status, "conditions") or ()}
    if field(conditions, "Ready", "status") == "True":
        return ""
    for one in field(status, "containerStatuses") or ():
        waiting, ended = field(one, "state", "waiting"), field(one, "state", "terminated")
        last = field(one, "lastState", "terminated") or ended
        code = "" if last is None else f", exit code {last.get('exitCode')}"
        if waiting is not None:
            return f"{waiting.get('reason', '')}{code}"
        if ended is not None:
            return f"ended{code}"
    if field(conditions, "PodScheduled", "status") == "False":
        return f"not scheduled: {conditions['PodScheduled'].get('message', '')}"
    return "not ready"


async def _refused(api: ApiServer) -> RefusedFile | None:
    for namespace in CONFIG_MAP_NAMESPACES:
        with IgnoreStatus(NOT_FOUND):
            document = await api.get(CONFIGMAPS, CONFIG_MAP, dict[str, Any], namespace=namespace)
            try:
                parse({**document, "kind": "ConfigMap"}, CONFIG_MAP)
            except ConfigError as exc:
                return msgspec.structs.replace(refused_file(exc.findings), since_ms=changed_ms(document))
            return None
    return None
