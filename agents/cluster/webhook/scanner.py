"""Scans for pods that were created without the webhook, and publishes a record and an Event for each."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator

from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.metrics import MISSED
from slacktide.agents.cluster.webhook.missed import StoredPod, lacked
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import LIVE_PHASES
from slacktide.schemas.missed_pod import MissedPod, missed_advice
from slacktide.schemas.policy.selector import Selector, matches
from slacktide.schemas.topics import MISSED_POD
from slacktide.streams.decisions.admission.label_selector import InvalidSelector, is_empty
from slacktide.streams.decisions.admission.webhook_colocation_profile import Profile
from slacktide.streams.records import Out, event

log = logging.getLogger(__name__)

SOURCE = "webhook"
NAMED_MAX = 5
EVENTS_MAX = 100
"""Events per scan: after an outage there may be thousands of pods."""
REASON = "CreatedWithoutWebhook"


class MissedPodScanner:
    """Compares pods with the profiles that select them.

    ``left_out``: namespaces whose pods are never changed. ``publish`` queues a record. ``now_ms`` is UTC epoch time.
    """

    def __init__(
        self,
        api: ApiServer,
        cache: ClusterCache,
        left_out: Container[str],
        publish: Callable[[Out], None],
        now_ms: Callable[[], int],
        *,
        replica: str,
    ) -> None:
        self.missed: dict[str, MissedPod] = {}
        """By uid: existing pods as they were first found."""
        self._shown: set[str] = set()
        self._source = EventSource(part="webhook", replica=replica, action="Admit")
        self._api, self._cache, self._left_out = api, cache, left_out
        self._publish, self._now_ms = publish, now_ms

    async def look(self) -> None:
        """Scan once. Raises ApiError if pods cannot be listed; earlier results stay."""
        found = {pod.metadata.uid: pod async for pod in self._candidates() if pod.metadata.uid}
        now = {uid: missed for uid, pod in found.items() if (missed := self._missed(pod)) is not None}
        fresh = [missed for uid, missed in now.items() if uid not in self.missed]
        self.missed = {uid: self.missed.get(uid, missed) for uid, missed in now.items()}
        self._shown &= set(self.missed)
        MISSED.set(sum(missed.phase in LIVE_PHASES for missed in now.values()))
        if fresh:
            names = ", ".join(f"{one.namespace}/{one.name}" for one in fresh[:NAMED_MAX])
            log.warning("pods were created without the webhook", extra={"count": len(fresh), "pods": names})
        for missed in fresh:
            self._publish(_out(missed))
        await self._show([missed for uid, missed in self.missed.items() if uid not in self._shown][:EVENTS_MAX])

    async def _candidates(self) -> AsyncIterator[StoredPod]:
        profiles = [dated.profile for dated in self._cache.profiles.objects.values()]
        for namespace, labels in sorted(set(self._scopes(profiles))):
            for pod in (await self._api.list(PODS, StoredPod, namespace=namespace, labels=labels)).items:
                yield pod

    def _scopes(self, profiles: Iterable[Profile]) -> Iterator[tuple[str, str]]:
        """Namespace ("": all) and label selector of each list request."""
        for profile in profiles:
            namespace, own = profile.namespace_selector, profile.selector
            if isinstance(namespace, InvalidSelector) or isinstance(own, InvalidSelector):
                continue
            if is_empty(own) and not is_empty(namespace):
                known = self._cache.namespaces.objects.items()
                yield from ((name, "") for name, found in known if matches(namespace, found.labels))
            else:
                yield "", label_selector(own)

    def _missed(self, pod: StoredPod) -> MissedPod | None:
        metadata = pod.metadata
        if metadata.namespace in self._left_out:
            return None
        namespace = self._cache.namespaces.objects.get(metadata.namespace)
        lacks = lacked(pod, namespace, self._cache.profiles.objects.values())
        if not lacks:
            return None
        return MissedPod(
            pod_uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            phase=pod.status.phase,
            created_ms=pod.created_ms,
            found_ms=self._now_ms(),
            lacks=lacks,
            owner_kind=pod.owner_kind,
        )

    async def _show(self, missed: list[MissedPod]) -> None:
        """Create an Event on each pod, for its owner. Raises ApiError if an Event was not created."""
        for one in missed:
            pod = About(namespace=one.namespace, name=one.name, uid=one.pod_uid)
            await create_event(self._api, self._source, pod, REASON, note_of(one), now_ms=self._now_ms())
            self._shown.add(one.pod_uid)


def note_of(missed: MissedPod) -> str:
    """Return the Event's text."""
    profiles = ", ".join(dict.fromkeys(one.profile for one in missed.lacks))
    lacks = "; ".join(f"{one.field} is {one.found or 'absent'}, not {one.wanted}" for one in missed.lacks)
    return (
        f"the webhook was unavailable when the pod was created, so profile {profiles} was not applied: {lacks}. "
        f"What to do: {missed_advice(missed.owner_kind)}"
    )


def label_selector(selector: Selector) -> str:
    """In the syntax of list requests."""
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for one in selector.match_expressions:
        values = ",".join(one.values)
        match one.operator:
            case "In":
                parts.append(f"{one.key} in ({values})")
            case "NotIn":
                parts.append(f"{one.key} notin ({values})")
            case "Exists":
                parts.append(one.key)
            case "DoesNotExist":
                parts.append(f"!{one.key}")
    return ",".join(parts)


def _out(missed: MissedPod) -> Out:
    uid = missed.pod_uid
    event_id = f"missed/{uid}"
    return event(MISSED_POD.name, uid, encode(missed), source=SOURCE, event_id=event_id, event_ms=missed.found_ms)
