"""Issues node keys: reviews the token at the API server, and derives the key of the node in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from slacktide.agents.cluster.enrolment.review import NotAnAgentError, TokenReview, bound_of, request_of
from slacktide.agents.kubernetes import PODS, TOKEN_REVIEWS, ApiServer
from slacktide.schemas.enrolment import Enrolled
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.proof import NODE_KEY_LIFE_S, ClusterKey, node_key

log = logging.getLogger(__name__)


class NoKeyError(SlacktideError):
    """There is no cluster key yet."""


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class Issuer:
    """Enrols agents of one namespace. The first of the cluster keys in ``ring`` is the active one."""

    def __init__(
        self, api: ApiServer, namespace: str, ring: Callable[[], Sequence[ClusterKey]], now_ms: Callable[[], int]
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._ring = ring
        self._now_ms = now_ms

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
        found = (await self._api.list(PODS, _Pod, namespace=self._namespace, fields=fields)).items
        node = next((one.spec.node for one in found if one.metadata.uid == uid), "")
        if not node:
            raise NotAnAgentError("the token's pod does not exist, or is on no node")
        return node
