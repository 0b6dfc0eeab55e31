"""Checks which rights a login lacks, without reading, writing or creating anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from slacktide.schemas.access import Part
from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.probe import connected

READ, WRITE = 1 << 3, 1 << 4
"""A broker's bits for operations, by their numbers in the protocol."""
NO_AUTHORIZER = -(1 << 31)
"""The bits of a broker without an authorizer."""
NO_GENERATION, NO_MEMBER = -1, ""
_TEXT = String("utf-8")
_PARTITION = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", Array(Int32)),
    ("isr", Array(Int32)),
    ("offline_replicas", Array(Int32)),
)
_TOPIC = (
    ("error_code", Int16),
    ("topic", _TEXT),
    ("is_internal", Boolean),
    ("partitions", Array(*_PARTITION)),
    ("operations", Int32),
)


class _MetadataResponse(Response):  # type: ignore[misc]  # the client has no types
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        ("topics", Array(*_TOPIC)),
        ("cluster_operations", Int32),
    )


class _MetadataRequest(RequestStruct):  # type: ignore[misc]  # the client has no types
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(_TEXT)), ("create", Boolean), ("cluster_operations", Boolean), ("operations", Boolean)
    )


class _Rights(Request[_MetadataRequest]):  # type: ignore[misc]  # the client has no types
    """Metadata of topics with the operations allowed to the login: Kafka 2.3 and newer."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: type[_MetadataRequest]) -> _MetadataRequest:
        return request_struct_class(self._topics, False, False, True)


async def lacking(bootstrap: Cluster, part: Part, *, timeout_s: float = 10.0) -> list[str]:
    """Return what a login lacks: topics with the operation, then consumer groups. Topics need not exist.

    Raises:
        LogError: the cluster is unreachable, or does not answer.
    """
    wanted = dict.fromkeys((topic.name for topic in part.reads), READ)
    for topic in part.writes:
        wanted[topic.name] = wanted.get(topic.name, 0) | WRITE
    async with connected(bootstrap, timeout_s) as client:
        node = client.get_random_node()
        metadata = await client.send(node, _Rights(sorted(wanted)))
        allowed = {
            topic: 0 if code == TopicAuthorizationFailedError.errno else operations
            for code, topic, _, _, operations in metadata.topics
        }
        checked = {topic: bits for topic, bits in sorted(wanted.items()) if allowed[topic] != NO_AUTHORIZER}
        topics = [_named(topic, bits & ~allowed[topic]) for topic, bits in checked.items()]
        groups = [f"group {group} (Read)" for group in part.joins if await _denied(client, node, group)]
        return [*filter(None, topics), *groups]


def _named(topic: str, missing: int) -> str:
    which = [name for name, bit in (("Read", READ), ("Write", WRITE)) if missing & bit]
    return f"{topic} ({', '.join(which)})" if which else ""


async def _denied(client: Any, node: int, group: str) -> bool:
    """Check whether the login may not join a consumer group. A broker checks that before the member."""
    answer = await client.send(node, HeartbeatRequest(group, NO_GENERATION, NO_MEMBER))
    return bool(answer.error_code == GroupAuthorizationFailedError.errno)
