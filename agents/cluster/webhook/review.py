"""AdmissionReview requests and responses, JSON patches (RFC 6902), and whether an agent may evict a pod. Pure.

An agent may evict a best-effort pod of its own node, with the expected uid. The leading bridge, which deschedules, may
evict best-effort pods of any node, and pods that the queue started. RBAC cannot express this: an agent may evict every
pod or none. The API server puts the node into a pod-bound token (Kubernetes 1.30 and newer), so that no agent can claim
another node.
Source: kubernetes v1.34, staging/src/k8s.io/api/admission/v1/types.go.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from slacktide.agents.cluster.queue.work import MARK
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.kubernetes import listed
from slacktide.schemas.qos import LABEL_QOS, effective_qos, overruled
from slacktide.schemas.text import answer_of, excess_of
from slacktide.streams.decisions.admission.admitted_pod import CONTAINERS_MAX
from slacktide.streams.decisions.queue.job import QUEUE_NAME

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"


CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
AMOUNTS_MAX = 2_000
HEAD_BYTES = 1_000
_HEAD = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,128})"')
"""The API server writes the uid first."""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """The requesting user."""

    username: str = ""
    extra: dict[str, list[str]] | None = None
    """Claims of a token: its pod and node."""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """The request."""

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    user_info: UserInfo = UserInfo()
    object: dict[str, Any] | None = None
    dry_run: bool = False
    """Nothing will be stored."""
    excess: str = ""
    """Why the object was not read: it is beyond reason; "": it was."""


class _Asked(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    request: Request | None = None


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request is denied, for the requester."""

    code: int
    reason: str
    message: str


class _Response(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    uid: str
    allowed: bool
    status: Status | None = None
    patch_type: str | None = None
    patch: bytes | None = None
    warnings: Sequence[str] = ()


class _Answered(msgspec.Struct, frozen=True, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = KIND


_encoder = msgspec.json.Encoder()


def asked(raw: bytes) -> Request:
    """Parse a request; of one with an object beyond reason only the uid, which a refusal needs.

    Raises:
        BadMessageError: it is no AdmissionReview v1 with a request.
    """
    if excess := excess_of(raw):
        if (head := _HEAD.search(raw, 0, HEAD_BYTES)) is None:
            raise BadMessageError(KIND, f"{excess}, and no uid at the beginning")
        return Request(uid=head[1].decode(), excess=excess)
    try:
        review: _Asked = answer_of(raw, _Asked, where="the request")
    except TextError as exc:
        raise BadMessageError(KIND, exc.why) from exc
    if review.api_version != API_VERSION or review.request is None:
        raise BadMessageError(KIND, f"apiVersion {review.api_version!r}; accepted: {API_VERSION} with a request")
    return review.request


def excess_of_pod(request: Request) -> str:
    """Return why nobody has the time to read a pod at once, by its containers and their amounts; "": it is fine."""
    spec = (request.object or {}).get("spec")
    if not isinstance(spec, dict):
        return ""
    kinds = [spec.get(kind) for kind in CONTAINERS]
    containers = [one for kind in kinds if isinstance(kind, list) for one in kind]
    if len(containers) > CONTAINERS_MAX:
        return f"{len(containers)} containers; accepted: at most {CONTAINERS_MAX}"
    amounts = sum(map(_amounts, [*containers, spec, {"resources": {"overhead": spec.get("overhead")}}]))
    return f"{amounts} amounts of resources; accepted: at most {AMOUNTS_MAX}" if amounts > AMOUNTS_MAX else ""


def _amounts(asking: Any) -> int:
    resources = asking.get("resources") if isinstance(asking, dict) else None
    lists = resources.values() if isinstance(resources, dict) else ()
    return sum(len(one) for one in lists if isinstance(one, dict))


def allowed(request: Request, patch: Sequence[dict[str, Any]] = (), warnings: Sequence[str] = ()) -> bytes:
    """Allow the request, optionally with a JSON patch, and with warnings that clients such as kubectl print."""
    response = _Response(
        uid=request.uid,
        allowed=True,
        patch_type="JSONPatch" if patch else None,
        patch=_encoder.encode(patch) if patch else None,
        warnings=warnings,
    )
    return _encoder.encode(_Answered(response=response))


def refused(request: Request, status: Status) -> bytes:
    """Deny the request."""
    return _encoder.encode(_Answered(response=_Response(uid=request.uid, allowed=False, status=status)))


Operation = dict[str, Any]


def difference(before: Any, after: Any, path: str = "") -> list[Operation]:
    """Operations that turn ``before``, at the path, into ``after``; empty if they are equal."""
    if before is after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        found = [{"op": "remove", "path": f"{path}/{_escaped(name)}"} for name in before if name not in after]
        for name, value in after.items():
            where = f"{path}/{_escaped(name)}"
            added = {"op": "add", "path": where, "value": value}
            found += difference(before[name], value, where) if name in before else [added]
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [one for index, pair in pairs for one in difference(*pair, f"{path}/{index}")]
    # In Python True equals 1; in JSON it does not.
    if before != after or isinstance(before, bool) is not isinstance(after, bool):
        return [{"op": "replace", "path": path, "value": after}]
    return []


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


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
    options = (request.object or {}).get("deleteOptions") or {}
    uid = (options.get("preconditions") or {}).get("uid")
    if not isinstance(uid, str) or not uid:
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
    found = listed(pod, "API server")
    if not found.pods:
        return _forbidden(
            "unreadable", f"{eviction.pod} cannot be decoded, so it is not evicted", "; ".join(found.notes)
        )
    held = overruled(found.pods[0])
    qos = effective_qos(held.qos_label, held.kube_qos)
    if qos == EVICTABLE or (eviction.node is None and _is_queued(pod)):
        return None
    return _forbidden(
        "not_best_effort",
        f"{eviction.pod} is not of QoS class {EVICTABLE}, the only class that may be evicted; if it is batch "
        f"work, create it with the label {LABEL_QOS}: {EVICTABLE}",
        f"it is of QoS class {qos}",
    )


def _is_queued(pod: Mapping[str, Any]) -> bool:
    """Return whether a queue started the pod. The bridge stops such a pod, whatever its QoS class."""
    metadata = pod.get("metadata") or {}
    return QUEUE_NAME in (metadata.get("labels") or {}) and MARK in (metadata.get("annotations") or {})


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


def _forbidden(why: Why, message: str, found: str = "") -> Refusal:
    return Refusal(why=why, status=Status(code=403, reason="Forbidden", message=message), found=found)
