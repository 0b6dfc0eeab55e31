"""Probes a cluster and its abilities without writing to its topics."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.admin import REQUEST_MS
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


async def probe(bootstrap: Cluster, *, timeout_s: float = 10.0) -> Probed:
    """Probe one broker of the cluster.

    A listed request may still not work, so a producer id is requested, which costs only a number.

    Raises:
        LogError: the cluster is unreachable, or does not answer.
    """
    async with connected(bootstrap, timeout_s) as client:
        node = client.get_random_node()
        apis = {row[0] for row in (await client.send(node, ApiVersionRequest())).api_versions}
        trouble = await _idempotence_trouble(client, node, apis)
        metadata = await client.send(node, MetadataRequest([]))
        return Probed(
            id=metadata.cluster_id or "",
            brokers=len(metadata.brokers),
            round_trip_ms=statistics.median([await _round_trip_ms(client, node) for _ in range(ROUND_TRIPS)]),
            idempotence_trouble=trouble,
            transactions=not trouble and apis >= _TRANSACTIONS,
        )


@asynccontextmanager
async def connected(bootstrap: Cluster, timeout_s: float) -> AsyncIterator[Any]:
    """Connect, and raise ``LogError`` if that or a request fails."""
    made = AIOKafkaClient(**client(bootstrap), request_timeout_ms=REQUEST_MS)
    try:
        async with asyncio.timeout(timeout_s):
            await made.bootstrap()
            yield made
    except TimeoutError as exc:
        raise LogError(f"{bootstrap}: {silent(timeout_s)}") from exc
    except KafkaError as exc:
        raise LogError(f"{bootstrap}: {exc!r}") from exc
    finally:
        await made.close()


async def _idempotence_trouble(client: Any, node: int, apis: set[int]) -> str:
    if InitProducerIdRequest.API_KEY not in apis:
        return "the broker does not support producer ids"
    code = (await client.send(node, InitProducerIdRequest(None, 0))).error_code
    tries = 1
    while code and for_code(code).retriable and tries < INIT_TRIES:  # a new cluster
        await asyncio.sleep(INIT_PAUSE_S)
        code = (await client.send(node, InitProducerIdRequest(None, 0))).error_code
        tries += 1
    return f"the broker gives no producer id ({for_code(code).__name__})" if code else ""


async def _round_trip_ms(client: Any, node: int) -> float:
    loop = asyncio.get_running_loop()
    asked = loop.time()
    await client.send(node, ApiVersionRequest())
    return (loop.time() - asked) * 1000
