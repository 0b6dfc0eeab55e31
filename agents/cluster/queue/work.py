"""The protocol of the objects that the queue starts and stops, and the mark on each object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from slacktide.agents.kubernetes.resource import Resource
from slacktide.schemas.queue_objects import Metadata, WorkloadPodSet
from slacktide.schemas.text import integer_of
from slacktide.streams.decisions.queue.job import Admission, Conflict

Json = dict[str, Any]
MARK = "slacktide.io/queue-admission"
"""Annotation: the last admission that was acted on, and the result. It never decreases."""
ACTIVE = "slacktide.io/queue-active"
"""Annotation: ``false`` evicts the object and removes it from the queue. Kueue has this field in the Workload."""
_MARK = re.compile(r"(\d{1,18})/(\d{1,18}) (started|stopped|conflict|refused)")


class Mark(NamedTuple):
    """EPOCH/TURN RESULT; later marks compare greater."""

    epoch: int
    turn: int
    result: str

    @property
    def admission(self) -> tuple[int, int]:
        """Return epoch and turn of the admission."""
        return self.epoch, self.turn

    def __str__(self) -> str:
        return f"{self.epoch}/{self.turn} {self.result}"


def mark_of(annotations: Mapping[str, str]) -> Mark | None:
    """Parse the mark; None if it is absent or invalid."""
    found = _MARK.fullmatch(annotations.get(MARK, ""))
    return None if found is None else Mark(integer_of(found[1], where=MARK), integer_of(found[2], where=MARK), found[3])


class Write(NamedTuple):
    """A merge patch of the object or of its subresource."""

    what: str
    body: Json
    sub: str = ""
    why: str = ""


class Work(Protocol):
    """One object as read from the API server."""

    @property
    def metadata(self) -> Metadata:
        """Return its metadata."""

    @property
    def version(self) -> str:
        """Return its resource version."""

    @property
    def pod_sets(self) -> list[WorkloadPodSet]:
        """Return its pod sets without the changes of a start."""

    @property
    def pods_now(self) -> Mapping[str, int]:
        """Return the current maximum of parallel pods, by pod set."""

    @property
    def done(self) -> Mapping[str, int]:
        """Return how many requested pods will not run again, by pod set."""

    @property
    def suspended(self) -> bool:
        """Return whether it is suspended."""

    @property
    def settled(self) -> bool:
        """Return whether its controller has seen the suspension, and creates no pods any more."""

    @property
    def ready(self) -> bool:
        """Return whether all parallel pods are ready or finished."""

    @property
    def finished(self) -> bool:
        """Return whether it has completed or failed."""

    @property
    def pods(self) -> str:
        """Return a label selector of its pods, within its namespace."""

    def start(self, admitted: Mapping[str, Admission]) -> Json | Conflict:
        """Return the patch that starts it, from the admission of each pod set."""

    def stop(self) -> Json:
        """Return the patch that suspends it."""

    def back(self) -> Write | None:
        """Return the next write that restores it once it is suspended; None if it is restored."""


class Kind(NamedTuple):
    """A kind whose objects are queued."""

    name: str
    resource: Resource
    read: Callable[[msgspec.Raw], Work]
    """Raises msgspec.ValidationError if the object is invalid."""


def merged(*bodies: Mapping[str, Any]) -> Json:
    """Combine merge patches; the last value of a field wins."""
    found: Json = {}
    for body in bodies:
        for key, value in body.items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = merged(found[key], value) if both else value
    return found


def above(pods: Mapping[str, int], admitted: Mapping[str, int]) -> Sequence[str]:
    """Return the pod sets that may run more pods than were admitted."""
    return [name for name, count in pods.items() if count > admitted.get(name, 0)]
