"""An object that a queue starts and stops: what it asks for, its state, and the writes of a start and a stop."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import CaseError, TextError
from slacktide.schemas.queue_objects import POD_SETS_MAX, Metadata, PodTemplate, WorkloadPodSet
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.queue.job import PRIORITY_CLASS, Admission, Conflict
from slacktide.streams.decisions.queue.kinds.manifest import (
    Changes,
    Json,
    Part,
    Path,
    changed,
    converted,
    dotted,
    value_at,
)
from slacktide.streams.decisions.queue.kinds.placing import (
    HERE,
    ORIGINAL,
    Place,
    begun,
    differences,
    place_of,
    template_at,
)
from slacktide.streams.decisions.queue.kinds.rows import JOBSET, PARENTS, Row, State, kind_of

ANNOTATIONS: Path = ("metadata", "annotations")
FORMER = "slacktide.io/queue-former-selector"
"""Annotation of a JobSet that was stopped: keys of the node selectors that it was started with."""
OBJECT = ""
"""In the annotation: fields of the spec that are of no pod set."""


class PodSet(NamedTuple):
    """A pod set as an object has it."""

    name: str
    pods: int
    pod: Part
    """A pod template."""
    place: Place
    replicas: int = 1
    """Of its Jobs, if its object makes Jobs."""
    absent: Path | None = None
    """Where the template is to be written, as the object does not have it."""
    moved: Path | None = None
    """A node selector of all pod sets, which a start moves into each."""


class ObjectWrite(NamedTuple):
    """Changes of an object, in one write. ``name``: of a pod of a group."""

    changes: Changes
    name: str = ""


class _Kept(msgspec.Struct, frozen=True, rename="camel"):
    """Original values of a pod set; null: the field was absent. Absent: it did not change."""

    labels: dict[str, str] | UnsetType | None = UNSET
    annotations: dict[str, str] | UnsetType | None = UNSET
    node_selector: dict[str, str] | UnsetType | None = UNSET
    tolerations: list[Json] | UnsetType | None = UNSET


class _KeptOfObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Original values of the object's spec."""

    node_selector: dict[str, str] | UnsetType = UNSET
    submitter_pod_template: UnsetType | None = UNSET


class Original:
    """The values that a start replaced, from the annotation. One that cannot be read counts as absent."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._of_sets: dict[str, _Kept] = {}
        self.of_object: Json = {}
        with suppress(TextError, msgspec.ValidationError):
            given: dict[str, Json] = json_of(annotations.get(ORIGINAL, "{}"), dict[str, Json], where=ORIGINAL)
            self._of_sets = {name: msgspec.convert(one, _Kept) for name, one in given.items() if name != OBJECT}
            self.of_object = msgspec.to_builtins(msgspec.convert(given.get(OBJECT, {}), _KeptOfObject))

    def restored(self, raw: Json, place: Place, name: str) -> Changes:
        """Return the changes that restore a pod set."""
        kept = msgspec.structs.astuple(self._of_sets.get(name, _Kept()))
        return {path: value for path, value in zip(place, kept, strict=True)
                if value is not UNSET and value_at(raw, path) != value}  # fmt: skip


class Queued:
    """An object of a row's kind. ``given``: the object, then others that it depends on. Raises CaseError.

    Only ``metadata`` and ``refused`` are valid for an object that is refused.
    """

    def __init__(self, row: Row, given: Sequence[Json], parents: Collection[tuple[str, str]] = PARENTS) -> None:
        self.row, self.given, self.raw = row, given, given[0]
        self.object = Part(self.raw)
        self.metadata = self._metadata()
        self._annotations = self.metadata.annotations or {}
        self.refused = self._owned(parents) or self._managed() or self.refusal()
        """Why it is not queued; "": it is."""
        if self.refused:
            return
        self._original = Original(self._annotations)
        self._now = self._checked(self.object)
        self.sets = self._checked(Part(changed(self.raw, restored))) if (restored := self._restored()) else self._now
        self.pod_sets = [
            WorkloadPodSet(name=one.name, count=one.pods, template=converted(one.pod, PodTemplate)) for one in self.sets
        ]

    def refusal(self) -> str:
        """Return the kind's own reason not to queue it."""
        return ""

    def sets_of(self, spec: Part) -> Iterator[PodSet]:
        """Yield the pod sets of an object."""
        for row in self.row.pod_sets:
            for one in spec.each(row.path):
                if not one.there:
                    continue
                replicas, parallel = one[row.replicas].whole(1), 1
                if row.parallelism is not None:
                    parallel = one[row.parallelism].whole(1)
                if row.completions is not None:
                    parallel = min(parallel, one[row.completions].whole(parallel))
                pod = one[row.template]
                name = one[row.name].text() if "[]" in row.path or "*" in row.path else row.name
                yield PodSet(name, replicas * parallel, pod, place_of(pod.keys), replicas)

    @property
    def priority_class(self) -> str:
        """Return the name of its priority class: its label's, its own, or the first of its pod sets'."""
        label = (self.metadata.labels or {}).get(PRIORITY_CLASS, "")
        of_pods = next((name for one in self.pod_sets if (name := one.template.spec.priority_class_name)), "")
        return label or self.own_class or of_pods

    @property
    def own_class(self) -> str:
        """Return the name of the class that the object has beside its templates; "" if there is none."""
        return "" if self.row.priority_class is None else self.object[self.row.priority_class].text()

    @property
    def suspended(self) -> bool:
        """Return whether it is to create no pods."""
        return self.object[self.row.suspend].flag()

    @property
    def settled(self) -> bool:
        """Return whether its controller has seen the suspension, and creates no pods."""
        active = [] if self.row.active is None else [one.whole(0) for one in self.object.each(self.row.active)]
        unseen = self.row.unseen is not None and not self.object[self.row.unseen].text() and self.suspended
        return unseen or (self._is(self.row.settled) and not any(active))

    @property
    def finished(self) -> bool:
        """Return whether it has succeeded or failed."""
        ends = (self.row.succeeded, self.row.failed) if self.row.finished is None else (self.row.finished,)
        return any(map(self._is, ends))

    @property
    def succeeded(self) -> bool | None:
        """Return whether it has succeeded; None: it is not finished."""
        return self._is(self.row.succeeded) if self.finished else None

    @property
    def ready(self) -> bool:
        """Return whether all its pods are ready or finished."""
        if self.row.jobs is not None:
            done = sum(one["ready"].whole(0) + one["succeeded"].whole(0) for one in self.object[self.row.jobs].parts())
            return done == sum(one.replicas for one in self.sets)
        return self._is(self.row.ready) if self.row.ready is not None else not self.suspended

    @property
    def held(self) -> bool:
        """Return whether its controller would not run it."""
        return self._is(self.row.held)

    @property
    def done(self) -> dict[str, int]:
        """Return how many pods of a pod set will not run again, if there are any."""
        if self.row.jobs is None:
            return {}
        succeeded = {one["name"].text().lower(): one["succeeded"].whole(0)
                     for one in self.object[self.row.jobs].parts()}  # fmt: skip
        found = {
            one.name: one.pods // one.replicas * succeeded[one.name]
            for one in self.sets
            if 0 < succeeded.get(one.name, 0) <= one.replicas
        }
        return {name: pods for name, pods in found.items() if pods}

    @property
    def pods(self) -> list[str]:
        """Return selectors of its pods within its namespace: by labels, or by the field ``metadata.name``."""
        found = []
        for selector in self.row.pods:
            parts = [self.object[part].text() if at % 2 else part
                     for at, part in enumerate(re.split(r"[{}]", selector))]  # fmt: skip
            if all(parts[1::2]):
                found.append("".join(parts))
        return found

    def start(self, admitted: Mapping[str, Admission]) -> list[ObjectWrite] | Conflict:
        """Return the writes that start it, in order; a conflict: nothing is written."""
        changes, kept = Changes(), dict[str, Json]()
        for one in self.sets:
            if one.name not in admitted:
                return Conflict("podSetAssignments", one.name, ", ".join(admitted), one.name)
            raw, place = self.raw, one.place
            if one.absent is not None:
                raw, place = dict(one.pod.map()), HERE
            before = template_at(raw, place)
            if one.moved is not None and (both := Part(value_at(raw, one.moved), one.moved).texts()):
                before = msgspec.structs.replace(before, node_selector={**both, **before.node_selector})
                changes[one.moved] = None
                kept[OBJECT] = {str(one.moved[-1]): both}
            made = begun(before, admitted[one.name])
            if isinstance(made, Conflict):
                return made
            if one.absent is not None:
                changes[one.absent] = changed(raw, differences(raw, place, made[0], {}))
                kept[OBJECT] = {str(one.absent[-1]): None}
            else:
                changes |= differences(raw, place, made[0], kept.setdefault(one.name, {}))
        if original := {name: fields for name, fields in kept.items() if fields}:
            changes[*ANNOTATIONS, ORIGINAL] = msgspec.json.encode(original).decode()
        return [ObjectWrite(changes | self._switched(on=False))]

    def stop(self) -> list[ObjectWrite]:
        """Return the write that suspends it; it is restored later."""
        changes = self._switched(on=True)
        return [ObjectWrite(changes)] if changes else []

    def back(self) -> Changes | None:
        """Return the write that restores a suspended object; None: it is as it was."""
        if ORIGINAL not in self._annotations:
            return None
        restored = self._restored()
        changes: Changes = {**restored, (*ANNOTATIONS, ORIGINAL): None}
        if self.row is JOBSET:
            keys = {key for one in self._now for key in value_at(self.raw, one.place.node_selector) or {}}
            asked = {key for one in self.sets for key in one.pod["spec.nodeSelector"].texts()}
            changes[*ANNOTATIONS, FORMER] = ",".join(sorted((keys - asked) | self._former))
        return changes

    def stale_keys(self, admitted: Mapping[str, Admission]) -> list[str]:
        """Return the node labels of former flavors that a JobSet's child Jobs keep, as they are merged into."""
        now = {key for one in admitted.values() for flavor in one.flavors for key in flavor.node_labels}
        return sorted(self._former - now)

    @property
    def _former(self) -> set[str]:
        return {key for key in self._annotations.get(FORMER, "").split(",") if key}

    def _switched(self, *, on: bool) -> Changes:
        return {} if self.suspended == on else {tuple(self.row.suspend.split(".")): on}

    def _restored(self) -> Changes:
        found = Changes()
        for one in self._now:
            found |= self._original.restored(self.raw, one.place, one.name)
        return found | {("spec", key): value for key, value in self._original.of_object.items()}

    def _checked(self, spec: Part) -> list[PodSet]:
        found = [one._replace(name=one.name.lower()) for one in self.sets_of(spec)]
        names = [one.name for one in found]
        if not 0 < len(found) <= POD_SETS_MAX:
            raise CaseError("spec", f"{len(found)} pod sets; accepted: from 1 to {POD_SETS_MAX}")
        for one in found:
            if not one.name or names.count(one.name) > 1:
                raise CaseError(dotted(one.pod.keys), f"pod set {one.name!r}; accepted: names, each once")
            if one.pods > INT32_MAX:
                raise CaseError(dotted(one.pod.keys), f"{one.pods} pods; accepted: at most {INT32_MAX}")
        return found

    def _metadata(self) -> Metadata:
        return converted(self.object["metadata"], Metadata)

    def _owned(self, parents: Collection[tuple[str, str]]) -> str:
        for one in self.object["metadata"]["ownerReferences"].parts():
            if one["controller"].flag() and kind_of(one["apiVersion"].text(), one["kind"].text()) in parents:
                return "owned"
        return ""

    def _managed(self) -> str:
        by = "" if self.row.managed_by is None else self.object[self.row.managed_by].text()
        return "" if by in {"", self.row.operator} else "managed_by"

    def _is(self, state: State | None) -> bool:
        if state is None:
            return False
        if state.path is not None:
            return self.object[state.path].text() in state.values
        conditions = self.object["status"]["conditions"].parts()
        return any(one["type"].text() == state.condition and one["status"].text() == "True" for one in conditions)
