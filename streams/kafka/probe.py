"""Probes a cluster, its abilities and the rights of a login, without reading, writing or creating anything."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from slacktide.schemas.access import Part
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.admin import REQUEST_MS, TIMEOUT_S
from slacktide.streams.kafka.connecting import client, silent

ROUND_TRIPS = 9
INIT_TRIES = 10
INIT_PAUSE_S = 0.2
_TRANSACTIONS = {
    request.API_KEY
    for request in (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What a cluster reports about itself."""

    id: str
    brokers: int
    round_trip_ms: float
    """The median of a few small requests to one broker."""
    idempotence_trouble: str
    """Why it has no idempotent producers; "": it has."""
    transactions: bool


async def probe(bootstrap: Cluster) -> Probed:
    """Probe one broker of the cluster.

    A listed request may still not work, so a producer id is requested, which costs only a number. Raises LogError if
    the cluster is unreachable, or does not answer.
    """
    async with connected(bootstrap) as client:
        node = client.get_random_node()
        apis = {row[0] for row in (await client.send(node, ApiVersionRequest())).api_versions}
        trouble = "the broker does not support producer ids"
        if InitProducerIdRequest.API_KEY in apis:
            trouble = await _idempotence_trouble(client, node)
        metadata = await client.send(node, MetadataRequest([]))
        return Probed(
            id=metadata.cluster_id or "",
            brokers=len(metadata.brokers),
            round_trip_ms=statistics.median([await _round_trip_ms(client, node) for _ in range(ROUND_TRIPS)]),
            idempotence_trouble=trouble,
            transactions=not trouble and apis >= _TRANSACTIONS,
        )


async def cluster_id(bootstrap: Cluster) -> str:
    """Return the cluster's id; "": it has none. Raises LogError if it is unreachable, or does not answer."""
    async with connected(bootstrap) as client:
        return (await client.send(client.get_random_node(), MetadataRequest([]))).cluster_id or ""


@asynccontextmanager
async def connected(bootstrap: Cluster) -> AsyncIterator[Any]:
    """Connect, and raise ``LogError`` if that or a request fails."""
    made = AIOKafkaClient(**client(bootstrap), request_timeout_ms=REQUEST_MS)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await made.bootstrap()
            yield made
    except TimeoutError as exc:
        raise LogError(f"{bootstrap}: {silent(TIMEOUT_S)}") from exc
    except KafkaError as exc:
        raise LogError(f"{bootstrap}: {exc!r}") from exc
    finally:
        await made.close()


async def _idempotence_trouble(client: Any, node: int) -> str:
    code = 0
    for tried in range(INIT_TRIES):
        if tried:
            await asyncio.sleep(INIT_PAUSE_S)
        code = (await client.send(node, InitProducerIdRequest(None, 0))).error_code
        if not (code and for_code(code).retriable):  # retriable: a new cluster
            break
    return f"the broker gives no producer id ({for_code(code).__name__})" if code else ""


async def _round_trip_ms(client: Any, node: int) -> float:
    loop = asyncio.get_running_loop()
    asked = loop.time()
    await client.send(node, ApiVersionRequest())
    return (loop.time() - asked) * 1000


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


async def lacking(bootstrap: Cluster, part: Part) -> list[str]:
    """Return what a login lacks: topics with the operation, then consumer groups. Topics need not exist.

    Raises LogError if the cluster is unreachable, or does not answer.
    """
    wanted = dict.fromkeys((topic.name for topic in part.reads), READ)
    for topic in part.writes:
        wanted[topic.name] = wanted.get(topic.name, 0) | WRITE
    async with connected(bootstrap) as client:
        node = client.get_random_node()
        metadata = await client.send(node, _Rights(sorted(wanted)))
        allowed = {
            topic: 0 if code == TopicAuthorizationFailedError.errno else operations
            for code, topic, _, _, operations in metadata.topics
        }
        lacks: list[str] = []
        for where, bits in sorted(wanted.items()):
            missing = 0 if allowed[where] == NO_AUTHORIZER else bits & ~allowed[where]
            if which := [name for name, bit in (("Read", READ), ("Write", WRITE)) if missing & bit]:
                lacks.append(f"{where} ({', '.join(which)})")
        for group in part.joins:
            # A broker checks whether the login may join a group before it checks the member.
            answer = await client.send(node, HeartbeatRequest(group, NO_GENERATION, NO_MEMBER))
            if answer.error_code == GroupAuthorizationFailedError.errno:
                lacks.append(f"group {group} (Read)")
        return lacks
