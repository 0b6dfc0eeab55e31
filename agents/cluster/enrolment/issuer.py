"""Issues node keys: keeps the cluster keys, reviews tokens at the API server, and derives the key of a token's node.

The Secret with the cluster keys is filled if it is empty, and reloaded when it changes.
"""

import base64
import binascii
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Pod
from slacktide.agents.kubernetes.resource import CONFLICT, PODS, SECRETS, TOKEN_REVIEWS, IgnoreStatus
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.proof import (
    CURRENT,
    ENROL_AUDIENCE,
    NODE_KEY_LIFE_S,
    PREVIOUS,
    SECRET_BYTES_MIN,
    ClusterKey,
    Enrolled,
    ProofKeyError,
    node_key,
)

ACCOUNT = "slacktide-agent"
NODE_NAME, POD_NAME, POD_UID = (f"authentication.kubernetes.io/{name}" for name in ("node-name", "pod-name", "pod-uid"))


class NotAnAgentError(SlacktideError):
    """The token is not that of a node's agent."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The token's user."""

    username: str = ""
    extra: dict[str, list[str]] | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The review's result."""

    authenticated: bool = False
    user: User = User()
    audiences: list[str] | None = None
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True, kw_only=True):
    """A TokenReview with its result."""

    status: Status = Status()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The pod and node that a token is bound to."""

    node: str
    """"": not in the token, as before Kubernetes 1.30; the pod has it."""
    pod: str
    pod_uid: str


def request_of(token: str) -> dict[str, object]:
    """Return the TokenReview to create."""
    spec = {"token": token, "audiences": [ENROL_AUDIENCE]}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}


def bound_of(review: TokenReview, namespace: str) -> Bound:
    """Return the pod and node of the token. ``namespace`` is that of the agents.

    Raises:
        NotAnAgentError: the token is invalid, not an agent's, or not bound to a pod.
    """
    status = review.status
    if not status.authenticated or ENROL_AUDIENCE not in (status.audiences or ()):
        raise NotAnAgentError(f"the API server does not accept the token for the audience {ENROL_AUDIENCE}")
    wanted = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    if status.user.username != wanted:
        raise NotAnAgentError(f"the token belongs to {status.user.username[:253]}; accepted: {wanted}")
    extra = status.user.extra or {}
    claims = (extra.get(name) or [] for name in (NODE_NAME, POD_NAME, POD_UID))
    node, pod, uid = (values[0] if len(values) == 1 else "" for values in claims)
    if not pod or not uid:
        raise NotAnAgentError("the token is not bound to a pod; accepted: a projected ServiceAccount token")
    return Bound(node=node, pod=pod, pod_uid=uid)


log = logging.getLogger(__name__)


class NoKeyError(SlacktideError):
    """There is no cluster key yet."""


class Issuer:
    """Enrols agents of one namespace. The first of the cluster keys in ``ring`` is the active one."""

    def __init__(
        self, api: ApiServer, namespace: str, ring: Callable[[], Sequence[ClusterKey]], now_ms: Callable[[], int]
    ) -> None:
        self._api, self._namespace, self._ring, self._now_ms = api, namespace, ring, now_ms

    async def enrol(self, token: str) -> Enrolled:
        """Derive the key of the token's node.

        Raises:
            NotAnAgentError: the token is not that of a node's agent.
            NoKeyError: there is no cluster key yet.
            ApiError: the API server is unavailable.
        """
        ring = self._ring()
        if not ring:
            raise NoKeyError("no cluster key exists yet")
        review = await self._api.create(TOKEN_REVIEWS, request_of(token), TokenReview)
        bound = bound_of(review, self._namespace)
        node = bound.node or await self._node_of(bound.pod, bound.pod_uid)
        log.info("enrolled a node", extra={"node": node, "pod": bound.pod, "key_id": ring[0].id})
        return Enrolled.of(node_key(ring[0], node, self._now_ms() // 1_000 + NODE_KEY_LIFE_S))

    async def _node_of(self, pod: str, uid: str) -> str:
        """Before Kubernetes 1.30 a token only names its pod."""
        fields = f"metadata.name={pod}"
        found = (await self._api.list(PODS, Pod, namespace=self._namespace, fields=fields)).items
        node = next((one.spec.node_name for one in found if one.metadata.uid == uid), None)
        if not node:
            raise NotAnAgentError("the token's pod does not exist, or is on no node")
        return node


SECRET = "slacktide-node-proof"  # noqa: S105 - its name
SETTLE_S = 300.0
"""A kubelet updates a mounted Secret within two minutes; before that workers do not know a new key."""


class Ring:
    """The keys of one cluster, as one replica sees them. ``now_s`` is a monotonic clock, in seconds."""

    def __init__(self, api: ApiServer, namespace: str, now_s: Callable[[], float]) -> None:
        self._api, self._namespace, self._now_s = api, namespace, now_s
        self._keys: list[ClusterKey] = []
        self._since_s = 0.0

    def keys(self) -> list[ClusterKey]:
        """Keys with the active one first: the newest that every worker has had time to load."""
        settled = self._now_s() - self._since_s >= SETTLE_S
        return self._keys if settled or len(self._keys) == 1 else self._keys[::-1]

    async def look(self) -> None:
        """Read the Secret, and fill it if it is empty.

        Raises:
            ApiError: the API server is unavailable or denies access, or the Secret is missing.
            ProofKeyError: the Secret has an invalid key.
        """
        secret: dict[str, Any] = await self._api.get(SECRETS, SECRET, dict[str, Any], namespace=self._namespace)
        data: dict[str, str] = secret.get("data") or {}
        if not data.get(CURRENT):
            # Another replica may be faster; the next call reads its key.
            made = base64.b64encode(base64.b64encode(secrets.token_bytes(SECRET_BYTES_MIN))).decode()
            body = {"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}, "data": {CURRENT: made}}
            with IgnoreStatus(CONFLICT):
                await self._api.patch(SECRETS, SECRET, body, dict[str, Any], namespace=self._namespace)
                log.info("created a cluster key", extra={"secret": SECRET})
            return
        keys = [_key_of(data[name]) for name in (CURRENT, PREVIOUS) if data.get(name)]
        if keys != self._keys:
            self._keys, self._since_s = keys, self._now_s()
            log.info("loaded cluster keys", extra={"key_ids": [key.id for key in keys]})


def _key_of(text: str) -> ClusterKey:
    try:
        return ClusterKey.of(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, ValueError) as exc:
        raise ProofKeyError(f"Secret {SECRET}: a value is not valid base64") from exc
