"""Converts objects to records of the queue's topics."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from slacktide.schemas.queue import QueueSpec, QueueWorkload, spec_key, spec_of
from slacktide.schemas.queue_objects import Metadata, NamespaceObject, QueueObject, WorkloadObject
from slacktide.streams.decisions.queue.cluster_objects import RUN_SECONDS

KEPT = (RUN_SECONDS, "slacktide.io/quota-")
"""Prefixes of annotations that decisions read."""


class Published(NamedTuple):
    """A record to publish."""

    key: str
    message: QueueSpec | QueueWorkload


def published(one: QueueObject, now: str) -> Published | None:
    """Return the record of an object; None if the queue does not read its kind.

    A Job must be converted before. ``now``: creation time of a Workload without one.
    """
    if isinstance(one, WorkloadObject):
        uid = one.metadata.uid or f"workload/{one.metadata.namespace or 'default'}/{one.metadata.name}"
        made = msgspec.structs.replace(one, metadata=_kept(one, uid, now))
        return Published(uid, QueueWorkload(uid=uid, workload=made))
    spec = spec_of(msgspec.structs.replace(one, metadata=_kept(one, one.metadata.uid, None)))
    return None if spec is None else Published(spec_key(one), spec)


def _kept(one: QueueObject, uid: str, now: str | None) -> Metadata:
    """Keep only metadata that decisions read, without an operator's other labels and annotations."""
    given = one.metadata
    annotations = {key: value for key, value in (given.annotations or {}).items() if key.startswith(KEPT)}
    return Metadata(
        name=given.name,
        namespace=given.namespace,
        uid=uid,
        generation=given.generation,
        labels=given.labels if isinstance(one, NamespaceObject) else None,
        annotations=annotations or None,
        creation_timestamp=given.creation_timestamp or now,
    )
