"""Applies a namespace's quotas to a new pod: it is admitted, marked as borrowed or refused. Each answer is a record."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from slacktide.agents.cluster.webhook.mutation import Admission, Namespace, marked
from slacktide.agents.cluster.webhook.review import Request
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS, ApiError
from slacktide.schemas.bounds import NODE_CHARS_MAX
from slacktide.schemas.codec import encode
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.inventory import LIVE_PHASES, Resources
from slacktide.schemas.kubernetes_pod import BORROWED, read_pod
from slacktide.schemas.message import Message
from slacktide.schemas.missed_pod import RefusedPod
from slacktide.schemas.pod_admission import PodAdmission
from slacktide.schemas.topics import POD_ADMISSION, REFUSED_POD, Topic
from slacktide.streams.decisions.admission.namespace_quota import (
    PREFIX,
    Held,
    Quotas,
    Verdict,
    borrowed_text,
    in_vain_text,
    judged,
    quotas_of,
    refusal_text,
)
from slacktide.streams.records import Out, event

log = logging.getLogger(__name__)

ADMITTED = f"{PREFIX}request"
"""Annotation on a counted pod: the uid of its admission request."""
PENDING_S = 30.0
"""How long an admitted pod counts that is not listed: the API server may still reject it."""
LIST_S = 1.5
"""Timeout: below the API server's webhook timeout."""


class NotKnownError(SlacktideError):
    """What an answer depends on is unknown: the webhook configuration's failurePolicy applies."""


class _Pending(NamedTuple):
    held: Held
    until_s: float


class NamespaceQuota:
    """Lists pods for each request, since a watch may lag. Requests for one namespace are serialized.

    Two replicas that decide at the same moment do not see each other's pod. ``publish`` queues a record.
    """

    def __init__(self, api: ApiServer, publish: Callable[[Out], None], now_ms: Callable[[], int]) -> None:
        self._api, self._publish, self._now_ms = api, publish, now_ms
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._admitted: defaultdict[str, dict[str, _Pending]] = defaultdict(dict)
        """By namespace and request: pods that may not be stored yet."""

    async def admit(
        self, request: Request, done: Admission, asked: Resources, namespace: Namespace | None
    ) -> Admission:
        """Return the answer by the namespace's quotas; ``namespace`` None: unknown, and nothing is counted.

        A mark that the pod brings along counts for nothing. ``asked``: its requests. Raises NotKnownError if the
        namespace's pods cannot be counted.
        """
        done = marked(done, request, {BORROWED: None})
        if namespace is None:
            return done
        try:
            quotas = quotas_of(namespace.annotations)
        except BadMessageError as exc:
            return Admission(result="over_quota", refused=f"{exc}; correct the annotation")
        if not quotas.concerns(asked):
            return done
        verdict = await self._counted(request, asked, quotas) if quotas.counts(asked) else judged(quotas, asked, ())
        if not request.dry_run:
            self._record(request.namespace, name_of(done), verdict)
        return answer(request, done, quotas, verdict)

    async def _counted(self, request: Request, asked: Resources, quotas: Quotas) -> Verdict:
        """Answer by the namespace's pods; an admitted pod counts from now on."""
        name = request.namespace
        async with self._turns[name]:
            try:
                async with asyncio.timeout(LIST_S):
                    items = (await self._api.list(PODS, dict[str, Any], namespace=name)).items
            except (ApiError, TimeoutError) as exc:
                raise NotKnownError(f"pods of namespace {name} cannot be counted: {exc}") from exc
            now_s = asyncio.get_running_loop().time()
            admitted = self._pending(name, items, now_s)
            there = [*_live(items), *(one.held for key, one in admitted.items() if key != request.uid)]
            verdict = judged(quotas, asked, there)
            if verdict.result != "over_quota" and not request.dry_run:
                held = Held(asked, borrowed=verdict.result == "borrowed")
                admitted[request.uid] = _Pending(held, now_s + PENDING_S)
            return verdict

    def _pending(self, namespace: str, items: Sequence[Mapping[str, Any]], now_s: float) -> dict[str, _Pending]:
        """Return admitted pods that are not listed yet; expired ones are dropped."""
        listed = {(item["metadata"].get("annotations") or {}).get(ADMITTED) for item in items}
        kept = self._admitted[namespace]
        for key in [key for key, one in kept.items() if key in listed or one.until_s < now_s]:
            del kept[key]
        return kept

    def _record(self, namespace: str, name: str, verdict: Verdict) -> None:
        now_ms, found = self._now_ms(), verdict.exceeded

        def publish(topic: Topic, what: str, body: Message) -> None:
            event_id = f"{what}/{namespace}/{name}/{now_ms}"
            self._publish(
                event(topic.name, namespace, encode(body), source="webhook", event_id=event_id, event_ms=now_ms)
            )

        admission = PodAdmission(
            namespace=namespace,
            name=name,
            band=verdict.band,
            result=verdict.result,
            uses=verdict.uses,
            decided_ms=now_ms,
        )
        publish(POD_ADMISSION, "admission", admission)
        if verdict.result == "over_quota" and found is not None and found.quota is not None:
            log.warning("rejected a pod by its namespace's quota", extra={"pod": f"{namespace}/{name}"})
            refused = RefusedPod(
                namespace=namespace,
                name=name,
                resource=found.resource,
                asked=found.asked,
                used=found.used,
                bound=found.quota,
                refused_ms=now_ms,
            )
            publish(REFUSED_POD, "refused", refused)


def answer(request: Request, done: Admission, quotas: Quotas, verdict: Verdict) -> Admission:
    """Return what becomes of the pod by a verdict: its marks, and the text for its creator."""
    namespace, found = request.namespace, verdict.exceeded
    if found is None:
        free = any(one.quota is None for one in verdict.uses)
        admitted = marked(done, request, {ADMITTED: request.uid} if verdict.band != "free" else {})
        return replace(admitted, warnings=tuple(map(in_vain_text, quotas.in_vain)) if free else ())
    if verdict.result == "over_quota":
        return Admission(result="over_quota", refused=refusal_text(namespace, found))
    borrowed = marked(done, request, {ADMITTED: request.uid, BORROWED: "true"})
    return replace(borrowed, result="borrowed", warnings=(borrowed_text(namespace, found),))


def name_of(done: Admission) -> str:
    """Return the pod's name, which nobody has checked yet: it may have megabytes."""
    metadata = done.pod.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "?")[:NODE_CHARS_MAX]


def _live(items: Sequence[Mapping[str, Any]]) -> Iterator[Held]:
    for item in items:
        try:
            pod = read_pod(item)
        except BadMessageError as exc:
            log.warning(
                "ignored an invalid pod in the quota", extra={"pod": item["metadata"].get("name"), "why": str(exc)}
            )
            continue
        if pod.phase in LIVE_PHASES:
            yield Held(pod.requests, pod.borrowed)
