"""Pods and groups of pods, which wait by a scheduling gate."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import count

import msgspec

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import TextError
from slacktide.schemas.queue_objects import Metadata
from slacktide.schemas.text import integer_of
from slacktide.streams.decisions.queue.job import POD_SET, WORKLOAD, Admission, Conflict
from slacktide.streams.decisions.queue.kinds.manifest import Changes, Json, Part, changed
from slacktide.streams.decisions.queue.kinds.placing import GATE, HERE, ORIGINAL, begun, differences, template_at
from slacktide.streams.decisions.queue.kinds.queued import (
    ANNOTATIONS,
    ObjectWrite,
    Original,
    PodSet,
    Queued,
)

GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
_SHAPE = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "priorityClassName",
          "topologySpreadConstraints", "overhead", "resourceClaims")  # fmt: skip
MAIN = "main"


def group_uid(namespace: str, group: str) -> str:
    """Return the uid of a group's workload."""
    return f"pod-group/{namespace}/{group}"


class Member:
    """A pod."""

    def __init__(self, raw: Json) -> None:
        self.raw, self.part = raw, Part(raw)
        metadata, spec, status = (self.part[name] for name in ("metadata", "spec", "status"))
        self.name = metadata["name"].text()
        self.labels, self.annotations = metadata["labels"].texts(), metadata["annotations"].texts()
        self.phase, bound = status["phase"].text() or "Pending", bool(spec["nodeName"].text())
        self.gates = [dict(one.map()) for one in spec["schedulingGates"].parts()]
        self.gated = any(one.get("name") == GATE for one in self.gates)
        self.ended = self.phase in {"Succeeded", "Failed"}
        self.active = self.phase == "Running" or (bound and not self.ended)
        self.runnable = self.phase != "Failed" and (bound or not metadata["deletionTimestamp"].there)
        self.started = WORKLOAD in self.annotations
        self.free = self.phase == "Pending" and not bound and not self.gated
        """It waits for a node, not for a queue."""
        conditions = status["conditions"].parts()
        is_ready = any(one["type"].text() == "Ready" and one["status"].text() == "True" for one in conditions)
        self.ready = is_ready or self.phase == "Succeeded"

    @cached_property
    def asked(self) -> Part:
        """Return the pod without the changes of a start."""
        return Part(changed(self.raw, Original(self.annotations).restored(self.raw, HERE, MAIN)))

    @cached_property
    def shape(self) -> bytes:
        """Return what pods of a role have in common."""
        spec = self.asked["spec"]
        containers = [
            [[one[name].value for name in ("resources", "ports", "restartPolicy")] for one in spec[which].parts()]
            for which in ("initContainers", "containers")
        ]
        return msgspec.json.encode([containers, *(spec[name].value for name in _SHAPE)], order="sorted")


class PodGroup(Queued):
    """The pods of a group, or one pod."""

    @cached_property
    def members(self) -> list[Member]:
        """Return the pods by name."""
        return sorted(map(Member, self.given), key=lambda one: one.name)

    @cached_property
    def group(self) -> str:
        """Return the name of the group; "": it is one pod."""
        return self.members[0].labels.get(GROUP, "")

    @cached_property
    def _runnable(self) -> list[Member]:
        return [one for one in self.members if one.runnable]

    @cached_property
    def _total(self) -> int:
        """Return the number of pods of the group; 0: it is invalid."""
        if not self.group:
            return 1
        totals = {one.annotations.get(TOTAL, "") for one in self.members}
        with suppress(TextError):
            return integer_of(totals.pop(), where=TOTAL, least=1, most=INT32_MAX) if len(totals) == 1 else 0
        return 0

    def refusal(self) -> str:
        """Return why it is not queued. A group that was started stays in the queue while a pod of it is replaced."""
        started = any(one.started for one in self.members)
        if not started and any(one.free for one in self.members):
            return "not_gated"
        if not self._total:
            return "group_count"
        incomplete = len(self._runnable) < self._total and not self.finished and not started
        return "group_incomplete" if self.group and incomplete else ""

    def sets_of(self, _: Part) -> Iterator[PodSet]:
        """Yield the pod, or a role for each shape of pods."""
        for name, members in self._roles.items():
            yield PodSet(name, len(members), members[0].asked, HERE)

    @cached_property
    def _roles(self) -> dict[str, list[Member]]:
        if not self.group:
            return {MAIN: self.members}
        counted = self._runnable or self.members
        if len(counted) < self._total:
            counted = sorted(self.members, key=lambda one: (not one.runnable, one.name))
        shapes: dict[bytes, list[Member]] = {}
        for one in sorted(counted[: self._total], key=lambda one: one.name):
            shapes.setdefault(one.shape, []).append(one)
        # A role keeps its name while pods of it run.
        names = {one.shape: one.labels.get(POD_SET, "") for one in reversed(self.members) if one.started}
        free = (name for number in count() if (name := f"role-{number}") not in names.values())
        return {names.get(shape) or next(free): members for shape, members in shapes.items()}

    @property
    def suspended(self) -> bool:
        """Return whether a pod waits for a start."""
        return bool(self._waiting)

    @cached_property
    def _waiting(self) -> list[Member]:
        """Return the pods to start: never more than the group has."""
        free = self._total - sum(not one.gated for one in self._runnable)
        return [one for one in self._runnable if one.gated][: max(free, 0)]

    @property
    def settled(self) -> bool:
        """Return whether all pods that may run are gated."""
        return all(one.gated for one in self._runnable)

    @property
    def _successes(self) -> int:
        return sum(one.phase == "Succeeded" for one in self.members)

    @property
    def finished(self) -> bool:
        """Return whether enough pods succeeded, or no pod is active and one of them must not be retried."""
        if not self.group:
            return self.members[0].ended
        final = any(one.annotations.get(RETRIABLE) == "false" for one in self.members)
        return self._successes >= self._total or (final and not any(one.active for one in self.members))

    @property
    def succeeded(self) -> bool | None:
        """Return whether enough pods succeeded; None: it is not finished."""
        return self._successes >= self._total if self.finished else None

    @property
    def ready(self) -> bool:
        """Return whether all pods are ready or have succeeded."""
        whole = self.finished or len(self._runnable) >= self._total
        return whole and all(one.ready for one in self._runnable)

    @property
    def done(self) -> dict[str, int]:
        """Return how many pods of each role have succeeded."""
        found: dict[str, int] = {}
        if self.group:
            for name, members in self._roles.items():
                ended = sum(one.phase == "Succeeded" and one.shape == members[0].shape for one in self.members)
                found |= {name: ended} if ended else {}
        return found

    @property
    def pods(self) -> list[str]:
        """Return a selector by its label, or by the pod's name."""
        return [f"{GROUP}={self.group}"] if self.group else super().pods

    def start(self, admitted: Mapping[str, Admission]) -> list[ObjectWrite] | Conflict:
        """Return a write for each pod that waits. Other gates stay."""
        names, writes = {members[0].shape: name for name, members in self._roles.items()}, []
        for one in self._waiting:
            name = names.get(one.shape, "")
            if name not in admitted:
                return Conflict("podSetAssignments", name, ", ".join(admitted), name)
            made = begun(template_at(one.raw, HERE), admitted[name])
            if isinstance(made, Conflict):
                return made
            kept: Json = {}
            changes = differences(one.raw, HERE, made[0], kept)
            changes[*ANNOTATIONS, ORIGINAL] = msgspec.json.encode({MAIN: kept}).decode()
            changes["spec", "schedulingGates"] = [each for each in one.gates if each.get("name") != GATE] or None
            writes.append(ObjectWrite(changes, one.name))
        return writes

    def stop(self) -> list[ObjectWrite]:
        """Return no writes: its pods are evicted."""
        return []

    def back(self) -> Changes | None:
        """Return nothing: a pod that was started is never gated again."""
        return None

    @property
    def evicted(self) -> dict[str, str]:
        """Return the pods that a stop evicts: uids by name; none of a group that the queue did not start."""
        uids = {one.name: one.part["metadata.uid"].text() for one in self.members if not one.ended and not one.gated}
        return uids if any(one.started for one in self.members) else {}

    def _metadata(self) -> Metadata:
        first = super()._metadata()
        if not self.group:
            return first
        annotations = {key: text for one in self.members for key, text in one.annotations.items()}
        created = min(one.part["metadata.creationTimestamp"].text() for one in self.members)
        uid = group_uid(first.namespace, self.group)
        return Metadata(name=self.group, namespace=first.namespace, uid=uid, labels=first.labels,
                        annotations=annotations, creation_timestamp=created or None)  # fmt: skip
