"""Queries a cluster, and Kafka, for what is installed. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from slacktide.agents.cluster.webhook.mutation import changed_ms
from slacktide.agents.kubernetes.access import access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import (
    CONFIGMAPS,
    NODES,
    NOT_FOUND,
    PODS,
    ApiRefusedError,
    IgnoreStatus,
    Resource,
)
from slacktide.agents.publisher import read_policy
from slacktide.deploy.cli.doctor.cluster_checks import SYSTEM
from slacktide.deploy.cli.doctor.installed_checks import Agent, InstalledFacts
from slacktide.deploy.cli.doctor.preflight_facts import Metadata, Object, or_why
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import ConfigError, LogError
from slacktide.schemas.policy import DEFAULT, Policy, RefusedFile, parse, refused_file

NAME = "slacktide-agent"
DAEMON_SETS = Resource(group="apps", plural="daemonsets")
AGENTS = "app.kubernetes.io/name=slacktide,app.kubernetes.io/component=agent"
POLICY, POLICY_NAMESPACES = "slo-controller-config", (SYSTEM, "koordinator-system")
"""Beside Koordinator, Slacktide has a ConfigMap of its own."""


class _Scheduled(msgspec.Struct, frozen=True, rename="camel"):
    desired_number_scheduled: int = 0


class _DaemonSet(msgspec.Struct, frozen=True):
    status: _Scheduled = _Scheduled()


class _Reason(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    exit_code: int | None = None


class _State(msgspec.Struct, frozen=True):
    waiting: _Reason | None = None
    terminated: _Reason | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    state: _State = _State()
    last_state: _State = _State()


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[_Condition] = []
    container_statuses: list[_ContainerStatus] = []


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    affinity: dict[str, Any] | None = None

    @property
    def node(self) -> str:
        """Where it runs, or shall run by its DaemonSet."""
        return self.node_name or next(_named(self.affinity), "a node")


class _Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def trouble(self) -> str:
        """Why it is not ready; "": it is."""
        conditions = {one.type: one for one in self.status.conditions}
        if "Ready" in conditions and conditions["Ready"].status == "True":
            return ""
        for one in self.status.container_statuses:
            ended = one.last_state.terminated or one.state.terminated
            code = "" if ended is None else f", exit code {ended.exit_code}"
            if one.state.waiting is not None:
                return f"{one.state.waiting.reason}{code}"
            if one.state.terminated is not None:
                return f"ended{code}"
        scheduled = conditions.get("PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            return f"not scheduled: {scheduled.message}"
        return "not ready"


def _named(value: object) -> Iterator[str]:
    """Yield the names of nodes in the affinity that a DaemonSet gives to its pods."""
    if isinstance(value, dict):
        if value.get("key") == "metadata.name":
            yield from value.get("values") or ()
        for each in value.values():
            yield from _named(each)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each)


async def gather_installed(kubeconfig: Path | None, bootstrap: Cluster | None) -> InstalledFacts:
    """Query the cluster of a kubeconfig, and Kafka for the policy in force; without ``bootstrap`` it is unknown.

    Raises:
        ConfigError: the file cannot be used.
    """
    async with ApiServer(await access(kubeconfig), name="slacktide-doctor") as api:
        agents, refused = await or_why(lambda: _agents(api)), await or_why(lambda: _refused(api))
    policy = DEFAULT if bootstrap is None else await _in_force(bootstrap)
    if isinstance(refused, RefusedFile) and policy is not DEFAULT:
        return InstalledFacts(agents=agents, refused=policy.refused or refused, version=policy.version)
    return InstalledFacts(agents=agents, refused=refused)


async def _agents(api: ApiServer) -> list[Agent]:
    try:
        daemons = await api.get(DAEMON_SETS, NAME, _DaemonSet, namespace=SYSTEM)
    except ApiRefusedError as exc:
        if exc.status == NOT_FOUND:
            return []
        raise
    pods = (await api.list(PODS, _Pod, namespace=SYSTEM, labels=AGENTS)).items
    ready = {pod.spec.node for pod in pods if not pod.trouble}
    found = {pod.spec.node: pod.trouble for pod in pods if pod.spec.node not in ready} | dict.fromkeys(ready, "")
    if lacking := max(0, daemons.status.desired_number_scheduled - len(found)):
        # Its controller creates a pod for each node that it selects. Which nodes these are, only it knows.
        nodes = {node.metadata.name for node in (await api.list(NODES, Object)).items}
        found |= dict.fromkeys(sorted(nodes - found.keys())[:lacking], "no pod; see the DaemonSet's Events")
    return [Agent(node=node, trouble=trouble) for node, trouble in sorted(found.items())]


async def _refused(api: ApiServer) -> RefusedFile | None:
    for namespace in POLICY_NAMESPACES:
        with IgnoreStatus(NOT_FOUND):
            document = await api.get(CONFIGMAPS, POLICY, dict[str, Any], namespace=namespace)
            try:
                parse({**document, "kind": "ConfigMap"}, POLICY)
            except ConfigError as exc:
                return msgspec.structs.replace(refused_file(exc.findings), since_ms=changed_ms(document))
            return None
    return None


async def _in_force(bootstrap: Cluster) -> Policy:
    try:
        return (await read_policy(bootstrap)).policy
    except LogError:  # other checks report it
        return DEFAULT
