"""A pod's admission: from what the API server asks to the JSON patch that the profiles make. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from slacktide.agents.cluster.webhook.json_patch import Operation, difference
from slacktide.agents.cluster.webhook.review import Request
from slacktide.streams.decisions.admitted_pod import object_of, pod_of
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.webhook_colocation_profile import Cluster, PriorityClass, Profile, mutated

Result = Literal["mutated", "unchanged", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What becomes of a new pod."""

    result: Result
    patch: tuple[Operation, ...] = ()
    refused: str = ""
    """Why, for the one who made the pod."""
    because: tuple[Because, ...] = ()


def admission(
    request: Request,
    profiles: Iterable[Profile],
    priority_classes: Mapping[str, PriorityClass],
    namespace_labels: Mapping[str, str] | None,
) -> Admission:
    """Apply the profiles to the pod of a request; ``namespace_labels`` None: they could not be read.

    Raises:
        BadMessageError: the object is no pod.

    """
    before = request.object or {}
    cluster = Cluster(
        namespace_labels=namespace_labels, priority_classes=priority_classes, draw=lambda name: drawn(request.uid, name)
    )
    mutation = mutated(pod_of(before), request.operation, profiles, cluster)
    if mutation.pod is None:
        return Admission(result="refused", refused=mutation.refused, because=mutation.because)
    patch = tuple(difference(before, object_of(mutation.pod)))
    return Admission(result="mutated" if patch else "unchanged", patch=patch, because=mutation.because)


def drawn(uid: str, profile: str) -> int:
    """From 0 to 99: by the request's uid, which is random, so that a request asked again is answered the same."""
    return int.from_bytes(hashlib.sha256(f"{uid}/{profile}".encode()).digest()[:8]) % 100
