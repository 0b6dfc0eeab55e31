"""Finds pods that were created without the webhook: a profile selects them, and they lack its fields. Pure.

Only certain fields count: fixed labels and annotations, QoS class, priority and scheduler. Profiles with a probability
are excluded, and those selected only by another profile's labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slacktide.agents.cluster.webhook.mutation import profile_of
from slacktide.agents.kubernetes.resource import Meta
from slacktide.schemas.errors import TextError
from slacktide.schemas.missed_pod import LackedMark
from slacktide.schemas.policy.selector import Selector, matches
from slacktide.schemas.qos import LABEL_QOS, LABEL_SUB_PRIORITY
from slacktide.schemas.text import time_ms_of
from slacktide.streams.decisions.admission.label_selector import InvalidSelector
from slacktide.streams.decisions.admission.webhook_colocation_profile import Profile

_Mark = tuple[str, str]
"""The part of the pod, and the key."""
_LABELS, _ANNOTATIONS, _SPEC = "metadata.labels", "metadata.annotations", "spec"


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    priority_class_name: str | None = None
    scheduler_name: str | None = None


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    phase: str = ""


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = ""
    controller: bool = False


class _Metadata(Meta, frozen=True, kw_only=True, rename="camel"):
    owner_references: list[_Owner] | None = None


class StoredPod(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of a pod."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def created_ms(self) -> int:
        """UTC epoch milliseconds, to the second."""
        return _ms(self.metadata.creation_timestamp)

    @property
    def owner_kind(self) -> str:
        """Return the kind of its controller; "": none."""
        return next((one.kind for one in self.metadata.owner_references or () if one.controller), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """The namespace's labels, for selectors."""

    labels: Mapping[str, str]
    changed_ms: int
    """Pods created before this are not checked."""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedProfile:
    """A profile with its last change."""

    profile: Profile
    changed_ms: int


def dated(item: Mapping[str, Any]) -> DatedProfile:
    """Parse a ClusterColocationProfile. Raises BadMessageError if a type is wrong; the path is in the text."""
    return DatedProfile(profile=profile_of(item), changed_ms=changed_ms(item))


def namespace_of(item: Mapping[str, Any]) -> Namespace:
    """Parse a Namespace."""
    metadata = item.get("metadata") or {}
    return Namespace(
        labels=metadata.get("labels") or {}, changed_ms=changed_ms(item), annotations=metadata.get("annotations") or {}
    )


def changed_ms(item: Mapping[str, Any]) -> int:
    """Return the last write outside of the status, in UTC epoch milliseconds, to the second."""
    metadata = item.get("metadata") or {}
    written = [one.get("time") for one in metadata.get("managedFields") or () if not one.get("subresource")]
    return max((_ms(text) for text in (metadata.get("creationTimestamp"), *written) if text), default=0)


def lacked(pod: StoredPod, namespace: Namespace | None, profiles: Iterable[DatedProfile]) -> list[LackedMark]:
    """Return fields that the pod should have; empty if no profile selects it, or it is older."""
    if namespace is None:
        return []
    matched = _matched(pod, namespace, sorted(profiles, key=lambda dated: dated.profile.name))
    found = _found(pod)
    return [
        LackedMark(profile=profile, field=_shown(mark), wanted=text, found=found.get(mark))
        for mark, (text, profile) in sorted(_wanted(matched).items())
        if found.get(mark) != text
    ]


def _matched(pod: StoredPod, namespace: Namespace, profiles: Sequence[DatedProfile]) -> list[Profile]:
    """Return profiles that selected the pod when it was created, whatever labels they set."""
    labels = pod.metadata.labels or {}
    meant = [one for one in profiles if _is_for(one.profile, labels, namespace.labels)]
    if any(pod.created_ms <= since for since in (namespace.changed_ms, *(one.changed_ms for one in meant))):
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
        yield from _patched(profile.patch)


def _patched(patch: Mapping[str, Any]) -> Iterator[_Mark]:
    metadata = _within(patch, "metadata")
    yield from ((_LABELS, key) for key in _within(metadata, "labels"))
    yield from ((_ANNOTATIONS, key) for key in _within(metadata, "annotations"))
    yield from ((_SPEC, key) for key in _within(patch, "spec"))


def _within(patch: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    found = patch.get(part)
    return found if isinstance(found, dict) else {}


def _found(pod: StoredPod) -> dict[_Mark, str]:
    found = {(_LABELS, key): text for key, text in (pod.metadata.labels or {}).items()}
    found |= {(_ANNOTATIONS, key): text for key, text in (pod.metadata.annotations or {}).items()}
    named = (("priorityClassName", pod.spec.priority_class_name), ("schedulerName", pod.spec.scheduler_name))
    return found | {(_SPEC, key): text for key, text in named if text}


def _shown(mark: _Mark) -> str:
    where, key = mark
    return f"{where}.{key}" if where == _SPEC else f"{where}[{key}]"


def _ms(text: str) -> int:
    """0 for a year that no object has: whoever changes an object may write it."""
    try:
        return time_ms_of(text, where="a time of the object")
    except TextError:
        return 0
