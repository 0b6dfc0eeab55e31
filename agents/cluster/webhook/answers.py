"""Handles admission requests: AdmissionReview bytes in and out."""

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook import review
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.metrics import ADMISSION, ADMISSIONS, DRY_RUNS, EVICTIONS
from slacktide.agents.cluster.webhook.mutation import (
    Admission,
    Namespace,
    admission,
    gated,
    gated_by_gang,
    in_accord,
    new_pod,
    with_cores,
)
from slacktide.agents.cluster.webhook.quota import NamespaceQuota, NotKnownError, name_of
from slacktide.agents.cluster.webhook.review import Eviction, Refusal, away, eviction_of, refusal
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import NOT_FOUND, PODS, ApiRefusedError
from slacktide.schemas.errors import BadMessageError, ConfigError, SlacktideError
from slacktide.schemas.policy import parse
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

READ_S = 3.0
"""Timeout for reading the pod to evict: below the API server's webhook timeout."""
WARNING_CHARS_MAX = 256
"""The API server cuts longer ones."""
LOGGED_CHARS_MAX = 4_096
"""Of an object in Kubernetes."""

FORBIDDEN_RESULTS = frozenset({"over_quota", "contradictory"})


class Answers:
    """Responds by the state of the cluster.

    ``api`` reads the pod to evict, whose state must not be older than the request. ``publish`` queues a record.
    ``left_out``: namespaces whose pods are never changed, such as that of the webhook itself. ``queue``: pods that name
    a queue wait for it. ``gangs``: pods of gangs wait for all of their gang.
    """

    def __init__(
        self,
        api: ApiServer,
        cache: ClusterCache,
        left_out: Container[str],
        config_map: ConfigMapName,
        publish: Callable[[Out], None],
        now_ms: Callable[[], int],
        *,
        queue: bool = False,
        gangs: bool = False,
    ) -> None:
        self._api, self._config_map, self._queue, self._gangs = api, config_map, queue, gangs
        self._quota = NamespaceQuota(api, publish, now_ms)
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
                if why := request.excess or review.excess_of_pod(request):
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
            done = admission(
                request,
                [one.profile for one in self._cache.profiles.objects.values()],
                self._cache.priority_classes.objects,
                None if namespace is None else namespace.labels,
                free_class_enable=self._cache.free_class_enabled,
            )
            if done.result != "refused":
                done = await self._checked(request, done, namespace)
        except BadMessageError as exc:
            # As an error of the webhook it would let the pod pass, over its namespace's quota too.
            return _invalid(request, str(exc))
        ADMISSIONS.labels(done.result).inc()
        if done.result in FORBIDDEN_RESULTS:
            return review.refused(request, review.Status(code=403, reason="Forbidden", message=done.refused))
        if done.result != "refused":
            return review.allowed(request, done.patch, [*done.warnings, *_dry_run(request, done)])
        message = f"{done.refused}; correct the profile, or remove its labels from the pod or its namespace"
        return review.refused(request, review.Status(code=422, reason="Invalid", message=message))

    async def _checked(self, request: review.Request, done: Admission, namespace: Namespace | None) -> Admission:
        """Return the answer for a pod that the profiles admit."""
        pod = new_pod(done.pod)
        done = in_accord(done, pod, strict=self._cache.demands.strict_qos)
        if done.result == "contradictory":
            return done
        if self._cache.demands.exclusive_cpus:
            done = with_cores(done, pod, request)
        if self._queue:
            done = gated(done, request)
        if self._gangs:
            done = gated_by_gang(done, request)
        return await self._quota.admit(request, done, pod.requests, namespace)

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


def _dry_run(request: review.Request, done: Admission) -> list[str]:
    """Report what profiles in dry run would do: counted, logged, and as a warning for who creates the pod."""
    if not done.dry_run:
        return []
    DRY_RUNS.inc()
    log.info(
        "profiles in dry run",
        extra={"pod": f"{request.namespace}/{name_of(done)}", "dry_run": done.dry_run[:LOGGED_CHARS_MAX]},
    )
    return [f"colocation profiles in dry run: {done.dry_run}"[:WARNING_CHARS_MAX]]


WARNINGS_MAX = 10
"""The API server drops warnings beyond 4,096 characters."""


def policy_warnings(document: Mapping[str, Any] | None) -> list[str]:
    """Return a line for each error; of a valid ConfigMap, for each field without effect."""
    try:
        return list(parse({**(document or {}), "kind": "ConfigMap"}, "policy").notes[:WARNINGS_MAX])
    except ConfigError as exc:
        refused = [f"policy refused: {one.described}" for one in exc.findings[:WARNINGS_MAX]]
        return [*refused, "the last valid policy stays in force"]
