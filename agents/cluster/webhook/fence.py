"""Whether an agent may evict a pod: one of its own node, best-effort, and the very one that it decided on. Pure.

The bridge, which deschedules, may evict a best-effort pod of any node.

RBAC cannot express this: it lets an agent evict every pod or none. The API server puts into a token
that is bound to a pod which node that pod is on (Kubernetes 1.30 and newer); no agent can claim another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slacktide.agents.cluster.webhook.review import Request, Status
from slacktide.schemas.kubernetes import listed
from slacktide.schemas.qos import LABEL_QOS, effective_qos

BRIDGE = "system:serviceaccount:slacktide-system:slacktide-bridge"
NODE_CLAIM = "authentication.kubernetes.io/node-name"
EVICTABLE = "BE"

Why = Literal["no_node_claim", "no_uid", "pod_gone", "other_uid", "other_node", "unreadable", "not_best_effort", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an eviction may not be."""

    why: Why
    status: Status
    """For the caller: what is wrong, and what to do. It reveals nothing of the pod that the caller did not name."""
    found: str = ""
    """What the pod is instead, for the webhook's own log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """What an agent, or the bridge, wants to evict."""

    namespace: str
    name: str
    pod_uid: str
    node: str | None
    """Whose agent it is; None: the bridge."""

    @property
    def pod(self) -> str:
        """Its name, for messages."""
        return f"pod {self.namespace}/{self.name}"


def eviction_of(request: Request) -> Eviction | Refusal:
    """Read whose agent wants which pod gone; without a node or a uid there is nothing to compare."""
    bridge = request.user_info.username == BRIDGE
    nodes = (request.user_info.extra or {}).get(NODE_CLAIM) or []
    if not bridge and (len(nodes) != 1 or not nodes[0]):
        return _forbidden(
            "no_node_claim",
            f"the token of {request.user_info.username} names no node: evict with a token that is bound to the agent's "
            "own pod (a projected serviceAccountToken volume; Kubernetes 1.30 or newer puts the node into it)",
        )
    uid = _uid(request.object or {})
    if not uid:
        return _forbidden(
            "no_uid",
            "deleteOptions.preconditions.uid is missing: name the uid of the pod that was decided on, so that no "
            "other pod of its name goes",
        )
    return Eviction(namespace=request.namespace, name=request.name, pod_uid=uid, node=None if bridge else nodes[0])


def refusal(eviction: Eviction, pod: Mapping[str, Any] | None) -> Refusal | None:
    """Why the pod, as the API server has it now, may not be evicted; None: it may. No pod: there is none."""
    if pod is None:
        return _gone("pod_gone", eviction, "no pod of that name")
    uid, node = (pod.get("metadata") or {}).get("uid"), (pod.get("spec") or {}).get("nodeName") or ""
    if uid != eviction.pod_uid:
        return _gone("other_uid", eviction, f"its uid is {uid}")
    if eviction.node is not None and node != eviction.node:
        return _forbidden(
            "other_node",
            f"{eviction.pod} is not on node {eviction.node}, which the token is for: an agent evicts pods of its own "
            "node alone",
            f"it is on node {node}" if node else "it is on no node yet",
        )
    return _unless_best_effort(eviction, pod)


def away(eviction: Eviction, why: str) -> Refusal:
    """The pod could not be looked at, so it stays."""
    message = f"{eviction.pod} could not be read, so it stays; try again in a few seconds"
    return Refusal(why="away", status=Status(code=503, reason="ServiceUnavailable", message=message), found=why)


def _gone(why: Why, eviction: Eviction, found: str) -> Refusal:
    """The same answer whether the name is free or taken by another pod: who knows no uid learns of no pod."""
    message = (
        f"{eviction.pod} with uid {eviction.pod_uid} does not exist: it is gone, and another one of its name may have "
        "taken its place; decide again by the newest pod list"
    )
    return Refusal(why=why, status=Status(code=404, reason="NotFound", message=message), found=found)


def _unless_best_effort(eviction: Eviction, pod: Mapping[str, Any]) -> Refusal | None:
    found = listed(pod, "API server")
    if not found.pods:
        return _forbidden("unreadable", f"{eviction.pod} cannot be decoded, so it stays", "; ".join(found.notes))
    qos = effective_qos(found.pods[0].qos_label, found.pods[0].kube_qos)
    if qos == EVICTABLE:
        return None
    return _forbidden(
        "not_best_effort",
        f"{eviction.pod} is not of QoS class {EVICTABLE}, and no other is evicted; where it is batch work, "
        f"create it with the label {LABEL_QOS}: {EVICTABLE}",
        f"it is of QoS class {qos}",
    )


def _uid(eviction: Mapping[str, Any]) -> str:
    options = eviction.get("deleteOptions") or {}
    uid = (options.get("preconditions") or {}).get("uid")
    return uid if isinstance(uid, str) else ""


def _forbidden(why: Why, message: str, found: str = "") -> Refusal:
    return Refusal(why=why, status=Status(code=403, reason="Forbidden", message=message), found=found)
