"""Counts what pods of a namespace request against its bounds, when one more is created."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from slacktide.agents.kubernetes import PODS, ApiServer
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.streams.decisions.namespace_quota import Exceeded, exceeded

log = logging.getLogger(__name__)

ADMITTED = "quota.slacktide.io/request"
"""Annotation on a pod that was counted: the uid of its admission request."""
PENDING_S = 30.0
"""For so long an admitted pod counts that the API server does not list: it may still refuse it."""
LIST_S = 1.5
"""Below the time that the API server waits for an answer."""


class _Admitted(msgspec.Struct, frozen=True):
    requests: Resources
    until_s: float


class NamespaceQuota:
    """Counts anew for each pod, for a watch may lag. Pods of one namespace wait for each other.

    Two replicas that answer at the same moment do not see each other's last pod.

    Args:
        api: where the pods are listed.

    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._admitted: defaultdict[str, dict[str, _Admitted]] = defaultdict(dict)
        """By namespace and request: pods that the API server may not have stored yet."""

    async def refusal(self, uid: str, namespace: str, asked: Resources, bounds: Mapping[str, int]) -> Exceeded | None:
        """Why a pod may not be created; None: it may, and counts from now on.

        Args:
            uid: of the admission request.
            namespace: of the pod.
            asked: requests of the pod.
            bounds: of the namespace.

        Raises:
            ApiError: the pods cannot be listed.
            TimeoutError: they were not listed in time.

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
        """Admitted pods that are not listed yet; others are forgotten."""
        listed = {(item["metadata"].get("annotations") or {}).get(ADMITTED) for item in items}
        kept = self._admitted[namespace]
        for key in [key for key, one in kept.items() if key in listed or one.until_s < now_s]:
            del kept[key]
        return kept


def requests_of(pod: Mapping[str, Any]) -> Resources:
    """Requests of a pod that has no uid yet.

    Raises:
        BadMessageError: a field cannot be used.

    """
    return read_pod({"metadata": {"name": "new", "uid": "new"}, "spec": pod.get("spec") or {}}).requests


def _live(items: Sequence[Mapping[str, Any]]) -> Iterator[Pod]:
    for item in items:
        try:
            pod = read_pod(item)
        except BadMessageError as exc:
            log.warning("a pod cannot be counted", extra={"pod": item["metadata"].get("name"), "why": str(exc)})
            continue
        if pod.phase in LIVE_PHASES:
            yield pod
