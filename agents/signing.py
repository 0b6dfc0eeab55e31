"""Proofs of those who evict and are no node: the bridge and the queue's decider, which have the cluster keys."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slacktide.schemas.proof import NODE_KEY_LIFE_S, ClusterKey, node_key
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.records import Out


def signed(out: Out, ring: Sequence[ClusterKey], now_ms: int) -> Out:
    """Return an own outcome with a proof, as a node's has one. Without a cluster key, return it unchanged.

    The key of ``out`` is its writer's name at the governor. The proof derives from the first key of ``ring``.
    """
    if not ring or out.topic != OUTCOME.name or out.key is None or out.value is None:
        return out
    key = node_key(ring[0], out.key.decode(), now_ms // 1_000 + NODE_KEY_LIFE_S)
    return msgspec.structs.replace(out, headers=(*out.headers, key.header(out.topic, out.value)))
