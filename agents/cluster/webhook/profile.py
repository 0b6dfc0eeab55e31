"""Parses ClusterColocationProfiles.

Source: koordinator a7a1b76b, apis/config/v1alpha1/cluster_colocation_profile_types.go and
    apis/extension/cluster_colocation_profile.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy.selector import Selector
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.admission.webhook_colocation_profile import PriorityClass, Profile

ANNOTATION_SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources"
"""On a profile, with any value: pods keep native CPU and memory."""
ANNOTATION_DRY_RUN = "slacktide.io/dry-run"
"""On a profile, as ``true``: the webhook does not change pods, and reports what it would change."""

_Texts = dict[str, str]


class _Expression(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: _Texts | None = None
    match_expressions: list[_Expression] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    namespace_selector: _Selector | None = None
    selector: _Selector | None = None
    probability: int | str | None = None
    labels: _Texts | None = None
    annotations: _Texts | None = None
    label_keys_mapping: _Texts | None = None
    annotation_keys_mapping: _Texts | None = None
    label_suffixes: _Texts | None = None
    scheduler_name: str = ""
    qos_class: str = msgspec.field(name="qosClass", default="")
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    patch: Any = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    annotations: _Texts | None = None


class _Profile(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    value: int
    preemption_policy: str = ""


def profile_of(item: Mapping[str, Any]) -> Profile:
    """Parse a ClusterColocationProfile.

    Raises:
        BadMessageError: a field has the wrong type; its path is in the text.
    """
    try:
        read = msgspec.convert(item, _Profile)
    except msgspec.ValidationError as exc:
        raise BadMessageError("ClusterColocationProfile", str(exc)) from None
    spec = read.spec
    return Profile(
        name=read.metadata.name,
        namespace_selector=_selector(spec.namespace_selector),
        selector=_selector(spec.selector),
        probability=100 if spec.probability is None else spec.probability,
        skip_update_resources=ANNOTATION_SKIP_UPDATE_RESOURCES in (read.metadata.annotations or {}),
        labels=spec.labels or {},
        annotations=spec.annotations or {},
        label_keys_mapping=spec.label_keys_mapping or {},
        annotation_keys_mapping=spec.annotation_keys_mapping or {},
        label_suffixes=spec.label_suffixes or {},
        scheduler_name=spec.scheduler_name,
        qos_class=spec.qos_class,
        priority_class_name=spec.priority_class_name,
        koordinator_priority=spec.koordinator_priority,
        patch=spec.patch,
        dry_run=(read.metadata.annotations or {}).get(ANNOTATION_DRY_RUN) == "true",
    )


def priority_class_of(item: Mapping[str, Any]) -> PriorityClass:
    """Parse a PriorityClass.

    Raises:
        BadMessageError: a field has the wrong type; its path is in the text.
    """
    try:
        read = msgspec.convert(item, _PriorityClass)
    except msgspec.ValidationError as exc:
        raise BadMessageError("PriorityClass", str(exc)) from None
    return PriorityClass(value=read.value, preemption_policy=read.preemption_policy)


def _selector(read: _Selector | None) -> Selector | InvalidSelector:
    if read is None:
        return Selector()
    expressions = [
        Expression(key=one.key, operator=one.operator, values=one.values or ()) for one in read.match_expressions or ()
    ]
    return selector_of(read.match_labels or {}, expressions)
