"""Binds pods that get CPUs for themselves, and names the CPUs in the same request.

The API server merges the annotations of a Binding into the pod when it writes the node's name: pkg/registry/core/pod/
storage/storage.go, setPodNodeAndMetadata. So no kubelet ever sees the pod without its CPUs, and no CPUs are named on a
pod that is not bound.
Source: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go, ExtenderBindingArgs.
"""

import logging
from typing import Any

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS, ApiError
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.text import answer_of
from slacktide.streams.decisions.cores.placement import CoresRefusal
from slacktide.streams.decisions.cores.take import written

log = logging.getLogger(__name__)


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class Binder:
    """Answers the verb bind. A pod whose CPUs are gone is not bound: the kube-scheduler tries it again."""

    def __init__(self, view: View, api: ApiServer, clock: Clock) -> None:
        self._view, self._api, self._clock = view, api, clock

    async def bind(self, body: bytes) -> bytes:
        """Bind a pod to its node and CPUs. Raises BadMessageError if the request is invalid."""
        try:
            asked: _Question = answer_of(body, _Question, where="")
        except TextError as exc:
            raise BadMessageError("ExtenderBindingArgs", str(exc)) from exc
        return msgspec.json.encode({"Error": await self._bind(asked)})

    async def _bind(self, asked: _Question) -> str:
        """Return why it cannot be bound; "": it is."""
        at_s, key = self._clock.wall_ms() / 1000, (asked.namespace, asked.name)
        found = self._view.cores(key, asked.uid, asked.node, now_s=mono_s(self._clock), at_s=at_s)
        if found is None:
            return f"slacktide: pod {asked.namespace}/{asked.name} with uid {asked.uid} is not known yet"
        if isinstance(found, CoresRefusal):
            return f"slacktide: {found.reason}: {found.text}"
        binding: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "namespace": asked.namespace,
                "name": asked.name,
                "uid": asked.uid,
                "annotations": found.annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": asked.node},
        }
        try:
            await self._api.create(
                PODS, binding, dict[str, Any], namespace=asked.namespace, name=asked.name, sub="binding"
            )
        except ApiError as exc:
            return f"slacktide: {exc}"
        where = {"pod": f"{asked.namespace}/{asked.name}", "node": asked.node, "cpus": written(found.cpus)}
        log.info("bound to CPUs", extra=where)
        return ""
