"""The record that an object becomes in the queue's topics, whoever publishes it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from slacktide.schemas.queue import QueueSpec, QueueWorkload, spec_key, spec_of
from slacktide.schemas.queue_objects import Metadata, NamespaceObject, QueueObject, WorkloadObject
from slacktide.streams.decisions.queue.cluster_objects import RUN_SECONDS

KEPT = (RUN_SECONDS, "slacktide.io/quota-")
"""Annotations that decisions go by begin so."""


class Published(NamedTuple):
    """A record to be."""

    key: str
    message: QueueSpec | QueueWorkload
    """Each has its own topic."""


def published(one: QueueObject, now: str) -> Published | None:
    """The record of an object; None: the queue does not go by its kind.

    Args:
        one: a Job has to be its Workload already.
        now: creation time of a Workload that names none.

    """
    if isinstance(one, WorkloadObject):
        uid = one.metadata.uid or f"workload/{one.metadata.namespace or 'default'}/{one.metadata.name}"
        made = msgspec.structs.replace(one, metadata=_kept(one, uid, now))
        return Published(uid, QueueWorkload(uid=uid, workload=made))
    spec = spec_of(msgspec.structs.replace(one, metadata=_kept(one, one.metadata.uid, None)))
    return None if spec is None else Published(spec_key(one), spec)


def _kept(one: QueueObject, uid: str, now: str | None) -> Metadata:
    """What the queue goes by: an operator's labels and annotations stay where they are."""
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
