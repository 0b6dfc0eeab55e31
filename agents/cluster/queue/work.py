"""What the queue starts and stops, of whatever kind: a protocol, and the mark that each object carries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from slacktide.agents.kubernetes import Resource
from slacktide.schemas.queue_objects import Metadata, WorkloadPodSet
from slacktide.streams.decisions.queue.job_start import Admission, Conflict

Json = dict[str, Any]
MARK = "slacktide.io/queue-admission"
"""Annotation of an object: the latest admission that was acted on, and how. It never goes back."""
ACTIVE = "slacktide.io/queue-active"
"""Annotation of an object: ``false`` takes it out of the queue, and evicts it. Kueue has it in the Workload."""
_MARK = re.compile(r"(\d{1,18})/(\d{1,18}) (started|stopped|conflict|refused)")


class Mark(NamedTuple):
    """EPOCH/TURN RESULT: later ones are greater."""

    epoch: int
    turn: int
    result: str

    @property
    def admission(self) -> tuple[int, int]:
        """Which admission."""
        return self.epoch, self.turn

    def __str__(self) -> str:
        """As the annotation has it."""
        return f"{self.epoch}/{self.turn} {self.result}"


def mark_of(annotations: Mapping[str, str]) -> Mark | None:
    """The mark; None: there is none, or none that can be read."""
    found = _MARK.fullmatch(annotations.get(MARK, ""))
    return None if found is None else Mark(int(found[1]), int(found[2]), found[3])


class Write(NamedTuple):
    """A merge patch of the object, or of its subresource."""

    what: str
    body: Json
    sub: str = ""
    why: str = ""
    """Of an admission that is not started."""


class Work(Protocol):
    """One object as it was read."""

    @property
    def metadata(self) -> Metadata:
        """Its own."""

    @property
    def version(self) -> str:
        """Its resource version."""

    @property
    def pod_sets(self) -> list[WorkloadPodSet]:
        """What it asks for, without what starting it has changed."""

    @property
    def pods_now(self) -> Mapping[str, int]:
        """By pod set how many pods it may run at a time as it is."""

    @property
    def done(self) -> Mapping[str, int]:
        """By pod set how many pods of those that it asks for will not run again."""

    @property
    def suspended(self) -> bool:
        """Whether it is to run no pods."""

    @property
    def settled(self) -> bool:
        """Whether its controller has seen that it is suspended: it makes no pods any more."""

    @property
    def ready(self) -> bool:
        """Whether all pods that it runs at a time are ready or done."""

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not."""

    @property
    def pods(self) -> str:
        """A label selector of its pods, within its namespace."""

    def start(self, admitted: Mapping[str, Admission]) -> Json | Conflict:
        """What starts it: by pod set what was admitted."""

    def stop(self) -> Json:
        """What suspends it."""

    def back(self) -> Write | None:
        """The next write that makes it as it was before it was started, once it is suspended; None: it is so."""


class Kind(NamedTuple):
    """A kind whose objects are queued."""

    name: str
    resource: Resource
    read: Callable[[msgspec.Raw], Work]
    """Raises msgspec.ValidationError where the object is not as its kind demands."""


def merged(*bodies: Mapping[str, Any]) -> Json:
    """Merge patches as one; of two values of a field the last counts."""
    found: Json = {}
    for body in bodies:
        for key, value in body.items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = merged(found[key], value) if both else value
    return found


def above(pods: Mapping[str, int], admitted: Mapping[str, int]) -> Sequence[str]:
    """Pod sets that may run more pods than were admitted."""
    return [name for name, count in pods.items() if count > admitted.get(name, 0)]
