"""Starts and stops objects of other operators, by the rows of kinds, and finds which of them the API server serves."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from slacktide.agents.cluster.queue.work import MARK, Kind, Work, Write, mark_of
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Json, Meta
from slacktide.agents.kubernetes.resource import CONFIGMAPS, NOT_FOUND, PODS, ApiRefusedError, Resource
from slacktide.schemas.text import answer_of
from slacktide.streams.decisions.queue.job import Admission, Conflict
from slacktide.streams.decisions.queue.kinds.files import CONFIG_MAP, RUNTIMES, own_rows
from slacktide.streams.decisions.queue.kinds.manifest import merge_patch, value_at
from slacktide.streams.decisions.queue.kinds.pods import GROUP, PodGroup, group_uid
from slacktide.streams.decisions.queue.kinds.queued import ObjectWrite, Queued
from slacktide.streams.decisions.queue.kinds.rows import POD, TRAIN_JOB, Row
from slacktide.streams.decisions.queue.kinds.table import Table
from slacktide.streams.decisions.queue.kinds.trainer import TrainJob


class KindWork(Work):
    """An object of a row's kind, or the pods of a group. All is computed at once, so that an error costs this alone."""

    foreign = True
    name, uid, halted = "", "", True

    def __init__(self, reread: Callable[[], Queued]) -> None:
        """``reread`` decodes the object: between its writes it is kept as text, which takes less memory."""
        read = reread()
        self._reread, self.metadata, self.refused = reread, read.metadata, read.refused
        self._versions = {str(value_at(one, ("metadata", "uid"))): _version(one) for one in read.given}
        first = read.raw
        if isinstance(read, PodGroup):
            first = read.members[0].raw
            if not (self.refused or read.finished or any(one.gated or one.started for one in read.members)):
                self.refused = "not_gated"  # running before the queue knew it
            marks = [mark for one in read.members if (mark := mark_of(one.annotations)) is not None]
            if marks:
                annotations = {**(self.metadata.annotations or {}), MARK: str(max(marks))}
                self.metadata = msgspec.structs.replace(self.metadata, annotations=annotations)
        self.name, self.uid = (str(value_at(first, ("metadata", key))) for key in ("name", "uid"))
        self.version = _version(first)
        self.evicted = read.evicted if isinstance(read, PodGroup) else {}
        self.halted = not self.evicted if isinstance(read, PodGroup) else read.suspended
        if self.refused:
            return
        self.pod_sets, self.own_class, self.held = read.pod_sets, read.own_class, read.held
        self.pods_now: Mapping[str, int] = {one.name: one.pods for one in read.sets}
        self.done, self.pods = read.done, read.pods
        self.suspended, self.settled, self.ready = read.suspended, read.settled, read.ready
        self.finished, self.partly = read.finished, isinstance(read, TrainJob) and read.patched
        self._restored = read.back() is None

    def version_of(self, uid: str) -> str:
        """Return the version of an object of it; "": it is not there."""
        return self._versions.get(uid, "")

    def start(self, admitted: Mapping[str, Admission], *, again: bool) -> Json | Conflict:
        """Return the patch of the next write that starts it."""
        read = self._reread()
        made = read.start(admitted)
        if isinstance(made, Conflict):
            return made
        if again and isinstance(read, TrainJob) and not self.partly:
            return Conflict("spec", "runtimePatches", "dropped by the API server", "kept: use Trainer 2.2 or newer")
        return _patch(read, made[-1] if again and self.partly else made[0])

    def stop(self) -> Json:
        """Return the patch that suspends it. Pods are evicted instead."""
        read = self._reread()
        made = read.stop()
        return _patch(read, made[0]) if made else {}

    def back(self) -> Write | None:
        """Return the write that restores it once it is suspended; None if it is restored."""
        read = self._reread() if not self._restored else None
        changes = None if read is None else read.back()
        return None if read is None or changes is None else Write("restore", merge_patch(read.raw, changes))

    def stale(self, admitted: Mapping[str, Admission]) -> str:
        """Return what a start leaves behind of an earlier one; "": nothing."""
        keys = self._reread().stale_keys(admitted)
        return f"stale_selector: its Jobs keep the node labels {', '.join(keys)} of a former flavor" if keys else ""


def _patch(read: Queued, write: ObjectWrite) -> Json:
    """Return a write as a merge patch. One of a group names its pod."""
    if not write.name:
        return merge_patch(read.raw, write.changes)
    raw = next(one for one in read.given if value_at(one, ("metadata", "name")) == write.name)
    body = merge_patch(raw, write.changes)
    body["metadata"] = {**body.get("metadata", {}), "name": write.name, "resourceVersion": _version(raw)}
    return body


def _version(raw: Mapping[str, Any]) -> str:
    return str(value_at(raw, ("metadata", "resourceVersion")) or "")


def kind_of_row(table: Table, row: Row) -> Kind:
    """Return how objects of a row are read."""
    group, _, version = row.api_version.rpartition("/")
    resource = Resource(group=group, version=version, plural=row.plural) if group else PODS
    more = tuple(Resource(group=group, version=version, plural=f"{kind.lower()}s") for kind in RUNTIMES)
    return Kind(
        row.kind,
        resource,
        partial(_read, table, row),
        uid=_pod_uid if row is POD else _uid,
        more=more if row is TRAIN_JOB else (),
        keeps=row is POD or row is TRAIN_JOB,
    )


def _read(table: Table, row: Row, given: Sequence[msgspec.Raw]) -> Work:
    """Read an object, and what it depends on. Items of lists have no kind. Copies do not hold the whole list."""
    copies = [one.copy() for one in given]

    def reread() -> Queued:
        found: list[Json] = []
        for one in copies:
            raw: Json = answer_of(one, dict, where=row.kind)
            known = raw.get("kind") if found and row is TRAIN_JOB else row.kind
            found.append({**raw, "apiVersion": row.api_version, "kind": known})
        return table.read(found)

    return KindWork(reread)


def _uid(head: Meta) -> str:
    return head.uid


def _pod_uid(head: Meta) -> str:
    group = (head.labels or {}).get(GROUP, "")
    return group_uid(head.namespace, group) if group else head.uid


class _Served(msgspec.Struct, frozen=True):
    name: str


class _List(msgspec.Struct, frozen=True):
    resources: list[_Served] = []


async def served_kinds(api: ApiServer, rows: Sequence[Row]) -> tuple[Kind, ...]:
    """Return the kinds that the API server serves. Raises ApiError if it cannot be queried."""
    table, there = Table(rows), set[tuple[str, str]]()
    kinds = [kind_of_row(table, row) for row in table.rows]
    for path in dict.fromkeys(one.resource.group_path for one in kinds if one.resource.group):
        try:
            listed = await api.read(path, _List)
        except ApiRefusedError as exc:
            if exc.status != NOT_FOUND:
                raise
            continue
        there |= {(path, one.name) for one in listed.resources}
    return tuple(
        one for one in kinds if not one.resource.group or (one.resource.group_path, one.resource.plural) in there
    )


async def read_rows(api: ApiServer, namespace: str) -> list[Row]:
    """Read the rows that users added. Raises ConfigError if one is invalid, or ApiError."""
    try:
        found = await api.get(CONFIGMAPS, CONFIG_MAP, dict, namespace=namespace)
    except ApiRefusedError as exc:
        if exc.status != NOT_FOUND:
            raise
        return []
    return own_rows(found, f"ConfigMap {namespace}/{CONFIG_MAP}")
