"""Records with proofs, and keys to make them: short to write in a test."""

import base64

import msgspec

from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import ClusterKey, NodeKey, node_key
from slacktide.streams.records import Record
from testbed.samples import START_MS, SUPPRESS

REQUIRED: Policy = msgspec.structs.replace(SUPPRESS, node_proof="required")
LATER_S = START_MS // 1_000 + 3_600
"""An hour after the records of the tests were appended."""


def cluster_key(number: int = 1) -> ClusterKey:
    """One of 255 keys."""
    return ClusterKey.of(base64.b64encode(bytes([number]) * 32).decode())


def key_of(node: str = "node-1", cluster: ClusterKey | None = None, expires_s: int = LATER_S) -> NodeKey:
    return node_key(cluster or cluster_key(), node, expires_s)


def proven(record: Record, key: NodeKey | None = None) -> Record:
    assert record.key is not None
    assert record.value is not None
    signer = key or key_of(record.key.decode())
    header = signer.header(record.topic, record.value)
    return msgspec.structs.replace(record, headers=(*record.headers, header))
