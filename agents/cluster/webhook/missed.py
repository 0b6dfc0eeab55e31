"""Finds pods that were created without the webhook: a profile selects them, and they lack its fields. Pure.

Only certain fields count: fixed labels and annotations, QoS class, priority and scheduler. Profiles with a probability
are excluded, and those selected only by another profile's labels.
"""

import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.metrics import MISSED
from slacktide.agents.cluster.webhook.mutation import DatedProfile, Namespace, ms_of
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Pod
from slacktide.agents.kubernetes.resource import PODS
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import LIVE_PHASES
from slacktide.schemas.missed_pod import LackedMark, MissedPod, missed_advice
from slacktide.schemas.policy.selector import Selector, matches
from slacktide.schemas.qos import LABEL_QOS, LABEL_SUB_PRIORITY
from slacktide.schemas.topics import MISSED_POD
from slacktide.streams.decisions.admission.label_selector import InvalidSelector, is_empty
from slacktide.streams.decisions.admission.webhook_colocation_profile import Profile
from slacktide.streams.records import Out, event

log = logging.getLogger(__name__)

_Mark = tuple[str, str]
"""The part of the pod, and the key."""
FOUND_MAX = 256
"""Characters of a value that a user wrote."""
_LABELS, _ANNOTATIONS, _SPEC = "metadata.labels", "metadata.annotations", "spec"


def lacked(pod: Pod, namespace: Namespace | None, profiles: Iterable[DatedProfile]) -> list[LackedMark]:
    """Return fields that the pod should have; empty if no profile selects it, or it is older."""
    if namespace is None:
        return []
    matched = _matched(pod, namespace, sorted(profiles, key=lambda dated: dated.profile.name))
    found = _found(pod)
    return [
        LackedMark(profile=profile, field=_shown(mark), wanted=text, found=None if has is None else has[:FOUND_MAX])
        for mark, (text, profile) in sorted(_wanted(matched).items())
        if (has := found.get(mark)) != text
    ]


def _matched(pod: Pod, namespace: Namespace, profiles: Sequence[DatedProfile]) -> list[Profile]:
    """Return profiles that selected the pod when it was created, whatever labels they set."""
    labels = pod.metadata.labels or {}
    meant = [one for one in profiles if _is_for(one.profile, labels, namespace.labels)]
    created_ms = _created_ms(pod)
    if any(created_ms <= since for since in (namespace.changed_ms, *(one.changed_ms for one in meant))):
        return []
    matched = []
    for one in meant:
        others = {key for other in meant if other is not one for key, _ in _labels_set(other.profile)}
        as_it_came = {key: value for key, value in labels.items() if key not in others}
        if _is_for(one.profile, as_it_came, namespace.labels):
            matched.append(one.profile)
    return matched


def _is_for(profile: Profile, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
    selected = _selects(profile.namespace_selector, namespace_labels) and _selects(profile.selector, labels)
    return selected and not profile.dry_run


def _selects(selector: Selector | InvalidSelector, labels: Mapping[str, str]) -> bool:
    return not isinstance(selector, InvalidSelector) and matches(selector, labels)


def _wanted(profiles: Iterable[Profile]) -> dict[_Mark, tuple[str, str]]:
    """By field, the value and the last profile that sets it; without uncertain ones."""
    wanted: dict[_Mark, tuple[str, str]] = {}
    for profile in profiles:
        for mark, text in _set(profile):
            wanted[mark] = text, profile.name
        for mark in _uncertain(profile):
            wanted.pop(mark, None)
    return wanted


def _set(profile: Profile) -> Iterator[tuple[_Mark, str]]:
    for key, text in _labels_set(profile):
        yield (_LABELS, key), text
    for key, text in profile.annotations.items():
        yield (_ANNOTATIONS, key), text
    for key, text in (("priorityClassName", profile.priority_class_name), ("schedulerName", profile.scheduler_name)):
        if text:
            yield (_SPEC, key), text


def _labels_set(profile: Profile) -> Iterator[tuple[str, str]]:
    yield from profile.labels.items()
    if profile.qos_class:
        yield LABEL_QOS, profile.qos_class
    if profile.koordinator_priority is not None:
        yield LABEL_SUB_PRIORITY, str(profile.koordinator_priority)


def _uncertain(profile: Profile) -> Iterator[_Mark]:
    """Yield fields that may differ although the profile was applied."""
    if profile.probability not in (100, "100%"):
        yield from (mark for mark, _ in _set(profile))
    for key in (*profile.label_keys_mapping.values(), *profile.label_suffixes):
        yield _LABELS, key
    for key in profile.annotation_keys_mapping.values():
        yield _ANNOTATIONS, key
    if isinstance(profile.patch, dict):
        metadata = _within(profile.patch, "metadata")
        yield from ((_LABELS, key) for key in _within(metadata, "labels"))
        yield from ((_ANNOTATIONS, key) for key in _within(metadata, "annotations"))
        yield from ((_SPEC, key) for key in _within(profile.patch, "spec"))


def _within(patch: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    found = patch.get(part)
    return found if isinstance(found, dict) else {}


def _found(pod: Pod) -> dict[_Mark, str]:
    found = {(_LABELS, key): text for key, text in (pod.metadata.labels or {}).items()}
    found |= {(_ANNOTATIONS, key): text for key, text in (pod.metadata.annotations or {}).items()}
    named = (("priorityClassName", pod.spec.priority_class_name), ("schedulerName", pod.spec.scheduler_name))
    return found | {(_SPEC, key): text for key, text in named if text}


def _shown(mark: _Mark) -> str:
    where, key = mark
    return f"{where}.{key}" if where == _SPEC else f"{where}[{key}]"


def _created_ms(pod: Pod) -> int:
    """UTC epoch milliseconds, to the second."""
    return ms_of(pod.metadata.creation_timestamp or "")


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
        """Scan once, and create an Event on each missed pod, for its owner.

        Raises:
            ApiError: pods cannot be listed, so that earlier results stay, or an Event was not created.
        """
        found = {pod.metadata.uid: pod async for pod in self._candidates() if pod.metadata.uid}
        now = {uid: missed for uid, pod in found.items() if (missed := self._missed(pod)) is not None}
        fresh = [missed for uid, missed in now.items() if uid not in self.missed]
        self.missed = {uid: self.missed.get(uid, missed) for uid, missed in now.items()}
        self._shown &= set(self.missed)
        MISSED.set(sum(missed.phase in LIVE_PHASES for missed in now.values()))
        if fresh:
            names = ", ".join(f"{one.namespace}/{one.name}" for one in fresh[:NAMED_MAX])
            log.warning("pods were created without the webhook", extra={"count": len(fresh), "pods": names})
        for one in fresh:
            uid, event_id = one.pod_uid, f"missed/{one.pod_uid}"
            record = event(MISSED_POD.name, uid, encode(one), source=SOURCE, event_id=event_id, event_ms=one.found_ms)
            self._publish(record)
        for one in [missed for uid, missed in self.missed.items() if uid not in self._shown][:EVENTS_MAX]:
            pod = About(namespace=one.namespace, name=one.name, uid=one.pod_uid)
            await create_event(self._api, self._source, pod, REASON, note_of(one), now_ms=self._now_ms())
            self._shown.add(one.pod_uid)

    async def _candidates(self) -> AsyncIterator[Pod]:
        profiles = [dated.profile for dated in self._cache.profiles.objects.values()]
        for namespace, labels in sorted(set(self._scopes(profiles))):
            for pod in (await self._api.list(PODS, Pod, namespace=namespace, labels=labels)).items:
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

    def _missed(self, pod: Pod) -> MissedPod | None:
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
            created_ms=_created_ms(pod),
            found_ms=self._now_ms(),
            lacks=lacks,
            owner_kind=pod.controller.kind,
        )


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
