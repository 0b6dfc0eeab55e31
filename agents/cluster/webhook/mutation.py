"""Admission of a pod: from the AdmissionReview to the JSON patch. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from slacktide.agents.cluster.webhook.json_patch import Operation, difference
from slacktide.agents.cluster.webhook.review import Request
from slacktide.streams.decisions.admission.admitted_pod import object_of, pod_of
from slacktide.streams.decisions.admission.webhook_colocation_profile import Cluster, PriorityClass, Profile, mutated
from slacktide.streams.decisions.because import Because

Result = Literal["mutated", "unchanged", "refused", "over_quota"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The result for a new pod."""

    result: Result
    patch: tuple[Operation, ...] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)
    """The patched pod; empty if refused."""
    refused: str = ""
    because: tuple[Because, ...] = ()
    dry_run: str = ""
    """What profiles in dry run would change, or why they would refuse the pod; "": nothing."""


def admission(
    request: Request,
    profiles: Iterable[Profile],
    priority_classes: Mapping[str, PriorityClass],
    namespace_labels: Mapping[str, str] | None,
    *,
    free_class_enable: bool = False,
) -> Admission:
    """Apply the profiles to the pod of a request; ``namespace_labels`` None: unknown.

    Those in dry run change nothing: what all of them would make of the pod is compared.

    Raises:
        BadMessageError: the object is not a pod.
    """
    all_of_them = list(profiles)
    live = [profile for profile in all_of_them if not profile.dry_run]
    known = priority_classes, namespace_labels
    done = _admission(request, live, *known, free_class_enable=free_class_enable)
    if len(live) == len(all_of_them):
        return done
    trial = _admission(request, all_of_them, *known, free_class_enable=free_class_enable)
    return replace(done, dry_run=trial.refused or _changes(done.pod, trial.pod))


def _changes(pod: Mapping[str, Any], trial: Mapping[str, Any]) -> str:
    """Return which values of a pod would change, as JSON pointers."""
    places = [f"{one['path']} {json.dumps(one.get('value'))}" for one in difference(pod, trial)]
    return f"would change {', '.join(places)}" if places else ""


def _admission(
    request: Request,
    profiles: Iterable[Profile],
    priority_classes: Mapping[str, PriorityClass],
    namespace_labels: Mapping[str, str] | None,
    *,
    free_class_enable: bool,
) -> Admission:
    before = request.object or {}
    cluster = Cluster(
        namespace_labels=namespace_labels,
        priority_classes=priority_classes,
        draw=lambda name: drawn(request.uid, name),
        free_class_enable=free_class_enable,
    )
    mutation = mutated(pod_of(before), request.operation, profiles, cluster)
    if mutation.pod is None:
        return Admission(result="refused", refused=mutation.refused, because=mutation.because)
    pod = object_of(mutation.pod)
    patch = tuple(difference(before, pod))
    return Admission(result="mutated" if patch else "unchanged", patch=patch, pod=pod, because=mutation.because)


def marked(admitted: Admission, request: Request, annotation: str) -> Admission:
    """Annotate the pod with the request's uid, which identifies the pod once it is stored."""
    metadata = admitted.pod.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), annotation: request.uid}
    pod = {**admitted.pod, "metadata": {**metadata, "annotations": annotations}}
    return replace(admitted, result="mutated", patch=tuple(difference(request.object or {}, pod)), pod=pod)


def drawn(uid: str, profile: str) -> int:
    """Return a number from 0 to 99 from the request's uid, so that a retried request gets the same result."""
    return int.from_bytes(hashlib.sha256(f"{uid}/{profile}".encode()).digest()[:8]) % 100
