"""Enforces a namespace's bounds for pod requests at pod creation, with a record of each refused pod."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS
from slacktide.schemas.codec import encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.missed_pod import RefusedPod
from slacktide.schemas.topics import REFUSED_POD
from slacktide.streams.decisions.admission.namespace_quota import Exceeded, exceeded
from slacktide.streams.records import Out, event

log = logging.getLogger(__name__)

ADMITTED = "quota.slacktide.io/request"
"""Annotation on a counted pod: the uid of its admission request."""
PENDING_S = 30.0
"""How long an admitted pod counts that is not listed: the API server may still reject it."""
LIST_S = 1.5
"""Timeout: below the API server's webhook timeout."""


class _Admitted(msgspec.Struct, frozen=True):
    requests: Resources
    until_s: float


class NamespaceQuota:
    """Lists pods for each request, since a watch may lag. Requests for one namespace are serialized.

    Two replicas that decide at the same moment do not see each other's pod.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._admitted: defaultdict[str, dict[str, _Admitted]] = defaultdict(dict)
        """By namespace and request: pods that may not be stored yet."""

    async def refusal(self, uid: str, namespace: str, asked: Resources, bounds: Mapping[str, int]) -> Exceeded | None:
        """Return why a pod may not be created; None: it may, and counts from now on. ``uid`` is of the request.

        Raises:
            ApiError: pods cannot be listed.
            TimeoutError: the list took too long.
        """
        async with self._turns[namespace]:
            async with asyncio.timeout(LIST_S):
                listed = await self._api.list(PODS, dict[str, Any], namespace=namespace)
            now_s = asyncio.get_running_loop().time()
            admitted = self._pending(namespace, listed.items, now_s)
            there = [pod.requests for pod in _live(listed.items)]
            found = exceeded(bounds, [*there, *(one.requests for key, one in admitted.items() if key != uid)], asked)
            if found is None:
                admitted[uid] = _Admitted(asked, now_s + PENDING_S)
            return found

    def _pending(self, namespace: str, items: Sequence[Mapping[str, Any]], now_s: float) -> dict[str, _Admitted]:
        """Return admitted pods that are not listed yet; expired ones are dropped."""
        listed = {(item["metadata"].get("annotations") or {}).get(ADMITTED) for item in items}
        kept = self._admitted[namespace]
        for key in [key for key, one in kept.items() if key in listed or one.until_s < now_s]:
            del kept[key]
        return kept


def refused_pod(namespace: str, name: str, found: Exceeded, now_ms: int) -> Out:
    """Return the record of a pod that the quota refused."""
    refused = RefusedPod(
        namespace=namespace,
        name=name,
        resource=found.resource,
        asked=found.asked,
        used=found.used,
        bound=found.bound,
        refused_ms=now_ms,
    )
    event_id = f"refused/{namespace}/{name}/{now_ms}"
    return event(REFUSED_POD.name, namespace, encode(refused), source="webhook", event_id=event_id, event_ms=now_ms)


def requests_of(pod: Mapping[str, Any]) -> Resources:
    """Requests of a pod without a uid. Raises BadMessageError if a field is invalid."""
    return read_pod({"metadata": {"name": "new", "uid": "new"}, "spec": pod.get("spec") or {}}).requests


def _live(items: Sequence[Mapping[str, Any]]) -> Iterator[Pod]:
    for item in items:
        try:
            pod = read_pod(item)
        except BadMessageError as exc:
            log.warning(
                "ignored an invalid pod in the quota", extra={"pod": item["metadata"].get("name"), "why": str(exc)}
            )
            continue
        if pod.phase in LIVE_PHASES:
            yield pod
