"""Whether an agent may evict a pod: a best-effort pod of its own node, with the expected uid. Pure.

The leading bridge, which deschedules, may evict best-effort pods of any node.

RBAC cannot express this: an agent may evict every pod or none. The API server puts the node into a pod-bound token
(Kubernetes 1.30 and newer), so that no agent can claim another node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slacktide.agents.cluster.webhook.review import Request, Status
from slacktide.schemas.kubernetes import listed
from slacktide.schemas.qos import LABEL_QOS, effective_qos, overruled

BRIDGE = "system:serviceaccount:slacktide-system:slacktide-bridge"
NODE_CLAIM = "authentication.kubernetes.io/node-name"
EVICTABLE = "BE"

Why = Literal["no_node_claim", "no_uid", "pod_gone", "other_uid", "other_node", "unreadable", "not_best_effort", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an eviction is refused."""

    why: Why
    status: Status
    """For the caller. It reveals nothing about a pod whose uid the caller does not know."""
    found: str = ""
    """What the pod is instead, for the webhook's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """An eviction request of an agent or the bridge."""

    namespace: str
    name: str
    pod_uid: str
    node: str | None
    """The agent's node; None: the bridge."""

    @property
    def pod(self) -> str:
        """Namespace and name, for messages."""
        return f"pod {self.namespace}/{self.name}"


def eviction_of(request: Request) -> Eviction | Refusal:
    """Parse the request; without a node or a uid it is refused."""
    bridge = request.user_info.username == BRIDGE
    nodes = (request.user_info.extra or {}).get(NODE_CLAIM) or []
    if not bridge and (len(nodes) != 1 or not nodes[0]):
        return _forbidden(
            "no_node_claim",
            f"the token of {request.user_info.username} does not contain its node: evict with a token of the "
            "agent's own pod (a projected serviceAccountToken volume; requires Kubernetes 1.30 or newer)",
        )
    uid = _uid(request.object or {})
    if not uid:
        return _forbidden(
            "no_uid",
            "deleteOptions.preconditions.uid is missing: set it to the uid of the selected pod, so that no "
            "other pod of this name is evicted",
        )
    return Eviction(namespace=request.namespace, name=request.name, pod_uid=uid, node=None if bridge else nodes[0])


def refusal(eviction: Eviction, pod: Mapping[str, Any] | None) -> Refusal | None:
    """Return why the pod's current state forbids the eviction; None: it is allowed. ``pod`` None: it does not exist."""
    if pod is None:
        return _gone("pod_gone", eviction, "no pod has that name")
    uid, node = (pod.get("metadata") or {}).get("uid"), (pod.get("spec") or {}).get("nodeName") or ""
    if uid != eviction.pod_uid:
        return _gone("other_uid", eviction, f"its uid is {uid}")
    if eviction.node is not None and node != eviction.node:
        return _forbidden(
            "other_node",
            f"{eviction.pod} is not on node {eviction.node}, the node of the token: an agent may only evict "
            "pods of its own node",
            f"it is on node {node}" if node else "it is on no node yet",
        )
    return _unless_best_effort(eviction, pod)


def away(eviction: Eviction, why: str) -> Refusal:
    """Refuse, since the pod could not be read."""
    message = f"{eviction.pod} could not be read, so it is not evicted; try again in a few seconds"
    return Refusal(why="away", status=Status(code=503, reason="ServiceUnavailable", message=message), found=why)


def _gone(why: Why, eviction: Eviction, found: str) -> Refusal:
    """Return the same response for a free name and another uid, so that nothing is revealed."""
    message = (
        f"{eviction.pod} with uid {eviction.pod_uid} does not exist; a new pod may have its name: decide again "
        "with the newest pod list"
    )
    return Refusal(why=why, status=Status(code=404, reason="NotFound", message=message), found=found)


def _unless_best_effort(eviction: Eviction, pod: Mapping[str, Any]) -> Refusal | None:
    found = listed(pod, "API server")
    if not found.pods:
        return _forbidden(
            "unreadable", f"{eviction.pod} cannot be decoded, so it is not evicted", "; ".join(found.notes)
        )
    held = overruled(found.pods[0])
    qos = effective_qos(held.qos_label, held.kube_qos)
    if qos == EVICTABLE:
        return None
    return _forbidden(
        "not_best_effort",
        f"{eviction.pod} is not of QoS class {EVICTABLE}, the only class that may be evicted; if it is batch "
        f"work, create it with the label {LABEL_QOS}: {EVICTABLE}",
        f"it is of QoS class {qos}",
    )


def _uid(eviction: Mapping[str, Any]) -> str:
    options = eviction.get("deleteOptions") or {}
    uid = (options.get("preconditions") or {}).get("uid")
    return uid if isinstance(uid, str) else ""


def _forbidden(why: Why, message: str, found: str = "") -> Refusal:
    return Refusal(why=why, status=Status(code=403, reason="Forbidden", message=message), found=found)
