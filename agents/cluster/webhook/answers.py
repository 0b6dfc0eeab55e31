"""Handles admission requests: AdmissionReview bytes in and out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from typing import Any

from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook import review
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.fence import Eviction, Refusal, away, eviction_of, refusal
from slacktide.agents.cluster.webhook.metrics import ADMISSION, ADMISSIONS, DRY_RUNS, EVICTIONS
from slacktide.agents.cluster.webhook.missed import Namespace
from slacktide.agents.cluster.webhook.mutation import Admission, admission, in_accord, marked
from slacktide.agents.cluster.webhook.namespace_quota import ADMITTED, NamespaceQuota, refused_pod, requests_of
from slacktide.agents.cluster.webhook.policy_warnings import policy_warnings
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import NOT_FOUND, PODS, ApiError, ApiRefusedError
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.streams.decisions.admission.qos_priority_admit import bounded, bounds_of, refusal_text
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

READ_S = 3.0
"""Timeout for reading the pod to evict: below the API server's webhook timeout."""
WARNING_CHARS_MAX = 256
"""The API server cuts longer ones."""


ADMITTED_RESULTS = frozenset({"mutated", "unchanged"})
FORBIDDEN_RESULTS = frozenset({"over_quota", "contradictory"})


class NotKnownError(SlacktideError):
    """Profiles are unknown yet, so that no pod can be changed."""


class Answers:
    """Responds by the state of the cluster.

    ``api`` reads the pod to evict, whose state must not be older than the request. ``publish`` queues a record.
    ``left_out``: namespaces whose pods are never changed, such as that of the webhook itself.
    """

    def __init__(
        self,
        api: ApiServer,
        cache: ClusterCache,
        left_out: Container[str],
        config_map: ConfigMapName,
        publish: Callable[[Out], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._api, self._config_map = api, config_map
        self._quota = NamespaceQuota(api)
        self._publish, self._now_ms = publish, now_ms
        self._cache, self._left_out = cache, left_out

    async def mutate(self, raw: bytes) -> bytes:
        """Apply profiles to a new pod.

        Raises:
            BadMessageError: not a request for a pod.
            NotKnownError: profiles are not known yet. The API server then stores the pod unchanged.
        """
        try:
            with ADMISSION.time():
                request = review.asked(raw)
                if why := request.excess or review.excess_containers(request):
                    return _invalid(request, f"the pod is beyond what is read in time: {why}")
                return await self._mutated(request)
        except Exception:
            ADMISSIONS.labels("failed").inc()
            raise

    async def _mutated(self, request: review.Request) -> bytes:
        if request.namespace in self._left_out:
            ADMISSIONS.labels("left_out").inc()
            return review.allowed(request)
        if lacking := self._cache.lacking:
            raise NotKnownError(f"cannot read profiles, namespaces or priority classes: {lacking}")
        namespace = await self._cache.namespace(request.namespace)
        try:
            done = self._admission(request, namespace)
            if done.result != "refused":
                done = in_accord(done, strict=self._cache.strict_qos)
            if done.result in ADMITTED_RESULTS and namespace is not None:
                done = await self._within_quota(request, done, namespace)
        except BadMessageError as exc:
            # As an error of the webhook it would let the pod pass, over its namespace's quota too.
            return _invalid(request, str(exc))
        ADMISSIONS.labels(done.result).inc()
        if done.result in FORBIDDEN_RESULTS:
            return review.refused(request, review.Status(code=403, reason="Forbidden", message=done.refused))
        if done.result != "refused":
            return review.allowed(request, done.patch, _dry_run(request, done))
        message = f"{done.refused}; correct the profile, or remove its labels from the pod or its namespace"
        return review.refused(request, review.Status(code=422, reason="Invalid", message=message))

    def _admission(self, request: review.Request, namespace: Namespace | None) -> Admission:
        return admission(
            request,
            [one.profile for one in self._cache.profiles.objects.values()],
            self._cache.priority_classes.objects,
            None if namespace is None else namespace.labels,
            free_class_enable=self._cache.free_class_enabled,
        )

    async def _within_quota(self, request: review.Request, done: Admission, namespace: Namespace) -> Admission:
        """Return the answer, or the refusal by the namespace's quota."""
        try:
            bounds = bounds_of(namespace.annotations)
        except BadMessageError as exc:
            return Admission(result="over_quota", refused=f"{exc}; correct the annotation")
        if not bounds:
            return done
        asked = requests_of(done.pod)
        if not bounded(bounds, asked):
            return done
        try:
            found = await self._quota.refusal(request.uid, request.namespace, asked, bounds)
        except (ApiError, TimeoutError) as exc:
            raise NotKnownError(f"pods of namespace {request.namespace} cannot be counted: {exc}") from exc
        if found is None:
            return marked(done, request, ADMITTED)
        name = _name(done)
        log.warning("rejected a pod by its namespace's quota", extra={"pod": f"{request.namespace}/{name}"})
        self._publish(refused_pod(request.namespace, name, found, self._now_ms()))
        return Admission(result="over_quota", refused=refusal_text(request.namespace, found))

    async def check_policy(self, raw: bytes) -> bytes:
        """Allow a ConfigMap, and warn of what is invalid or has no effect in the policy.

        Raises:
            BadMessageError: not a request for a ConfigMap.
        """
        request = review.asked(raw)
        if (request.namespace, request.name) != (self._config_map.namespace, self._config_map.name):
            return review.allowed(request)
        return review.allowed(request, warnings=[one[:WARNING_CHARS_MAX] for one in policy_warnings(request.object)])

    async def fence(self, raw: bytes) -> bytes:
        """Return whether an agent may evict a pod.

        Raises:
            BadMessageError: not such a request. The API server then refuses the eviction.
        """
        request = review.asked(raw)
        eviction = eviction_of(request)
        refused = eviction if isinstance(eviction, Refusal) else await self._refusal(eviction)
        EVICTIONS.labels("allowed" if refused is None else refused.why).inc()
        if refused is None:
            return review.allowed(request)
        extra = {"asked_by": request.user_info.username, "why": refused.status.message, "found": refused.found}
        log.warning("rejected an eviction", extra=extra)
        return review.refused(request, refused.status)

    async def _refusal(self, eviction: Eviction) -> Refusal | None:
        try:
            async with asyncio.timeout(READ_S):
                pod: dict[str, Any] = await self._api.get(
                    PODS, eviction.name, dict[str, Any], namespace=eviction.namespace
                )
        except ApiRefusedError as exc:
            return refusal(eviction, None) if exc.status == NOT_FOUND else away(eviction, str(exc))
        except (SlacktideError, TimeoutError) as exc:
            return away(eviction, str(exc) or f"no answer within {READ_S:g} s")
        return refusal(eviction, pod)


def _invalid(request: review.Request, why: str) -> bytes:
    ADMISSIONS.labels("refused").inc()
    return review.refused(request, review.Status(code=422, reason="Invalid", message=why))


def _name(done: Admission) -> str:
    metadata = done.pod.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "?")


def _dry_run(request: review.Request, done: Admission) -> list[str]:
    """Report what profiles in dry run would do: counted, logged, and as a warning for who creates the pod."""
    if not done.dry_run:
        return []
    DRY_RUNS.inc()
    log.info("profiles in dry run", extra={"pod": f"{request.namespace}/{_name(done)}", "dry_run": done.dry_run})
    return [f"colocation profiles in dry run: {done.dry_run}"[:WARNING_CHARS_MAX]]
