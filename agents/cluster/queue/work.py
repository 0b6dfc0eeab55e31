"""The protocol of the objects that the queue starts and stops, and the next step of one by its workload's state. Pure.

The mark on the object names the last admission that was acted on, and the result. It never decreases, and each write
requires the resource version that was read. So no admission is started twice, or started after its final answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from slacktide.agents.kubernetes.objects import Meta
from slacktide.agents.kubernetes.resource import Resource
from slacktide.schemas.queue import REQUEUING_LIMIT, QueueBooking, QueueState, Result
from slacktide.schemas.queue_objects import Metadata, ResourceFlavorObject, WorkloadPodSet
from slacktide.schemas.text import integer_of
from slacktide.streams.decisions.queue.job import QUEUE_NAME, Admission, Conflict, Flavor, Toleration, workload_name

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
    """One object as read from the API server, or the pods of a group."""

    metadata: Metadata
    version: str
    """Its resource version."""
    pod_sets: list[WorkloadPodSet]
    """Without the changes of a start."""
    pods_now: Mapping[str, int]
    """The current maximum of parallel pods, by pod set."""
    done: Mapping[str, int]
    """How many requested pods will not run again, by pod set."""
    suspended: bool
    """Whether it waits for a start, or for the next write of one."""
    settled: bool
    """Whether its controller has seen the suspension, and creates no pods any more."""
    ready: bool
    """Whether all parallel pods are ready or finished."""
    finished: bool
    """Whether it has completed or failed."""
    pods: Sequence[str]
    """Selectors of its pods within its namespace: by labels, or by the field ``metadata.name``."""
    foreign: bool = False
    """Whether its controller is not Kubernetes' own: it may finish while pods run, and its suspension is waited for."""
    refused: str = ""
    """Why it is not queued. Then only its metadata and ``halted`` are valid."""
    own_class: str = ""
    """Its priority class beside those of pod templates."""
    held: bool = False
    """Whether its controller would not run it."""
    partly: bool = False
    """Whether the first of several writes of a start is there."""
    evicted: Mapping[str, str] = {}
    """Uids by name of pods that are evicted to stop it."""

    @property
    def name(self) -> str:
        """Return the name of the object that is written."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """Return the uid of that object."""
        return self.metadata.uid

    @property
    def halted(self) -> bool:
        """Return whether a stop has nothing to write."""
        return self.suspended

    def version_of(self, uid: str) -> str:
        """Return the version of an object of it; "": it is not there."""
        del uid
        return self.version

    def start(self, admitted: Mapping[str, Admission], *, again: bool) -> Json | Conflict:
        """Return the patch of the next write that starts it, from the admission of each pod set.

        ``again``: a write for this admission was acknowledged. A patch of another object names it in its metadata.
        """

    def stop(self) -> Json:
        """Return the patch that suspends it."""

    def back(self) -> Write | None:
        """Return the next write that restores it once it is suspended; None if it is restored."""

    def stale(self, admitted: Mapping[str, Admission]) -> str:
        """Return what a start leaves behind of an earlier one; "": nothing."""
        del admitted
        return ""


class Queue(NamedTuple):
    """A ClusterQueue or LocalQueue."""

    kind: str
    namespace: str
    name: str


class Kind(NamedTuple):
    """A kind whose objects are queued."""

    name: str
    resource: Resource
    read: Callable[[Sequence[msgspec.Raw]], Work]
    """Takes an object and what it depends on. Raises CaseError, TextError or ValidationError if it is invalid."""
    uid: Callable[[Meta], str] = lambda head: head.uid
    """Returns the uid of the workload of an object."""
    more: tuple[Resource, ...] = ()
    """Kinds that its objects depend on."""
    keeps: bool = False
    """Whether an object is read again when another changes."""


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


class Answer(NamedTuple):
    """The outcome of an admission."""

    booking: QueueBooking
    result: Result
    why: str = ""


class Look(NamedTuple):
    """Check whether a pod still runs; if none does, this is the answer."""

    booking: QueueBooking | None
    result: Result = "stopped"


Step = Write | Answer | Look | None


def due(work: Work, state: QueueState | None, flavors: Mapping[str, ResourceFlavorObject]) -> Step:
    """Return the next step; None if nothing is due. ``state`` is None if unknown to the decider."""
    booking = None if state is None else state.booking
    mark = mark_of(work.metadata.annotations or {})
    if work.finished:
        if work.foreign:
            return Look(booking, "finished")
        return None if booking is None else Answer(booking, "finished")
    if state is None or booking is None:
        return _without(work, mark, state)
    return _booked(work, state, booking, mark, flavors)


def _booked(
    work: Work, state: QueueState, booking: QueueBooking, mark: Mark | None, flavors: Mapping[str, ResourceFlavorObject]
) -> Step:
    admission = (booking.epoch, booking.turn)
    if mark is not None and mark.admission > admission:
        return None  # the state is stale
    ended = mark is not None and mark.admission == admission and mark.result != "started"
    if state.phase == "evicting" or (ended and mark is not None and mark.result == "stopped"):
        if not work.halted:
            return Write("stop", ending(booking, "stopped", work.stop()))
        return Look(booking) if ended else Write("stop", ending(booking, "stopped"))
    if ended and mark is not None:
        return Answer(booking, "conflict" if mark.result == "conflict" else "refused")
    return _starting(work, state, booking, mark, flavors)


def ending(booking: QueueBooking, result: Result, *more: Json) -> Json:
    """Return a write after which the admission is never started again."""
    mark = Mark(booking.epoch, booking.turn, result)
    return merged({"metadata": {"annotations": {MARK: str(mark)}}}, *more)


def _without(work: Work, mark: Mark | None, state: QueueState | None) -> Step:
    """Return the step without quota. A started object unknown to the decider runs on: Kafka may have lost data."""
    if state is not None and state.reason == REQUEUING_LIMIT and ACTIVE not in (work.metadata.annotations or {}):
        return Write("deactivate", {"metadata": {"annotations": {ACTIVE: "false"}}})
    if work.halted:
        return work.back()
    if state is None and mark is not None and mark.result == "started":
        return None
    return Write("suspend", work.stop())


def _starting(
    work: Work, state: QueueState, booking: QueueBooking, mark: Mark | None, flavors: Mapping[str, ResourceFlavorObject]
) -> Step:
    if not work.suspended:
        return _running(work, state, booking, mark)
    again = mark is not None and mark.admission == (booking.epoch, booking.turn)
    if not (again and work.partly) and (back := work.back()) is not None:
        return back
    admitted = _admitted(work, booking, flavors)
    if isinstance(admitted, str):
        return _ended(booking, "refused", f"ResourceFlavor {admitted} does not exist")
    asked = {one.name: one.count for one in work.pod_sets if one.min_count is None}
    if more := above(asked, _counts(booking)):
        return _ended(booking, "conflict", f"it has more pods than were admitted: {', '.join(more)}")
    body = work.start(admitted, again=again)
    if isinstance(body, Conflict):
        return _ended(booking, "conflict", f"{body.field}: {body.key} is {body.has!r}, not {body.wants!r}")
    return Write("start", ending(booking, "started", body), why=work.stale(admitted))


def _running(work: Work, state: QueueState, booking: QueueBooking, mark: Mark | None) -> Step:
    if mark is None and state.started:
        return None  # by another replica
    if mark is None or mark.admission != (booking.epoch, booking.turn):
        return Write("suspend", work.stop())
    if above(work.pods_now, _counts(booking)):
        return Write("stop", ending(booking, "stopped", work.stop()))
    if not state.started:
        return Answer(booking, "started")
    if work.ready != state.pods_ready and (work.ready or state.ready_reason):
        return Answer(booking, "ready" if work.ready else "unready")
    return None


def _counts(booking: QueueBooking) -> dict[str, int]:
    return {one.name: one.count for one in booking.pod_sets}


def _ended(booking: QueueBooking, result: Result, why: str) -> Write:
    return Write("refuse", ending(booking, result), why=why)


def _admitted(
    work: Work, booking: QueueBooking, flavors: Mapping[str, ResourceFlavorObject]
) -> dict[str, Admission] | str:
    """Return the admission by pod set, or the name of a flavor that does not exist."""
    metadata, found = work.metadata, {}
    for one in booking.pod_sets:
        assigned = []
        for name in dict.fromkeys(one.flavors[resource] for resource in sorted(one.flavors)):
            if name not in flavors:
                return name
            spec = flavors[name].spec
            tolerations = [
                Toleration(each.key, each.operator, each.value, each.effect) for each in spec.tolerations or ()
            ]
            assigned.append(Flavor(spec.node_labels or {}, tuple(tolerations)))
        found[one.name] = Admission(
            workload=workload_name(metadata.name, metadata.uid),
            cluster_queue=booking.cluster_queue,
            local_queue=(metadata.labels or {}).get(QUEUE_NAME, ""),
            pods=one.count,
            flavors=tuple(assigned),
            pod_set=one.name,
        )
    return found
