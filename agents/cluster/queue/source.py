"""Watches queue objects, and Jobs with a queue name, for the actuator and for the records to write.

These follow from the cluster's objects and the latest record of each key in Kafka.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from zlib import crc32

import msgspec

from slacktide.agents.cluster.queue.known import Known, Place
from slacktide.agents.cluster.queue.kueue import PLURALS
from slacktide.agents.cluster.queue.work import ACTIVE, Json, Kind, Queue, Work
from slacktide.agents.cluster.watching import inform
from slacktide.agents.ignored import IGNORED
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.objects import Head, Meta
from slacktide.agents.kubernetes.resource import Resource
from slacktide.schemas.codec import encode
from slacktide.schemas.errors import TextError, failure
from slacktide.schemas.queue_objects import (
    KINDS,
    ObjectCondition,
    PriorityClassObject,
    QueueObject,
    ReclaimablePod,
    ResourceFlavorObject,
    WorkloadPriorityClassObject,
    WorkloadStatus,
)
from slacktide.schemas.text import answer_of, integer_of
from slacktide.schemas.topics import QUEUE_SPEC, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.cluster_objects import QueueObjects
from slacktide.streams.decisions.queue.job import QUEUE_NAME
from slacktide.streams.decisions.queue.workload_objects import published

log = logging.getLogger(__name__)

Name = tuple[str, str, str]
SHOWN = {"ClusterQueue", "LocalQueue"}
"""Kinds whose status is written."""
CLASSES = (PriorityClassObject, WorkloadPriorityClassObject)


class Source:
    """The cluster's objects; ``known`` receives the records."""

    def __init__(self, known: Known) -> None:
        self.works: dict[str, tuple[Kind, Work]] = {}
        self.flavors: dict[str, ResourceFlavorObject] = {}
        self.stands: dict[Queue, Json] = {}
        """Status of ClusterQueues and LocalQueues in the API server."""
        self.changes = 0
        self.troubles: dict[str, str] = {}
        self.changed: Callable[[str], object] = self.works.get
        """Callback with the uid of a changed or deleted object."""
        self.refused: Callable[[Kind, Work], object] = lambda *_: None
        """Callback with an object that is not queued."""
        self._known = known
        self._essential = set[str]()
        """Kinds that must be listed before anything is started or stopped."""
        self._over = set[str]()
        """Finished works of which no pod runs any more."""
        self._kept: dict[str, dict[str, msgspec.Raw]] = {}
        """Objects by uid that are read again, by the uid of their work."""
        self._more: dict[str, dict[Name, msgspec.Raw]] = {}
        """What objects of a kind depend on."""
        self._uids: dict[Name, str] = {}
        self._objects: dict[Name, QueueObject] = {}
        self._classes = QueueObjects(())
        self._unlisted: set[str] | None = None
        """Kinds not listed yet; None: no list was requested."""

    @property
    def listed(self) -> bool:
        """Return whether all kinds of the queue are listed, and Jobs."""
        return self._unlisted is not None and not self._unlisted & self._essential

    @property
    def objects(self) -> list[QueueObject]:
        """Return all queue objects except those that are started and stopped."""
        return list(self._objects.values())

    @property
    def trouble(self) -> str:
        """Return why a kind cannot be read; "" if all can."""
        return next((why for why in self.troubles.values() if why), "")

    def follows(
        self, api: ApiServer, served: dict[str, Resource], kinds: tuple[Kind, ...]
    ) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines that watch the served kinds; ``kinds`` of objects to start and stop, Jobs first."""
        self._essential = {*served, kinds[0].name}
        more = [resource.plural for kind in kinds for resource in kind.more]
        self._unlisted = {*served, *(kind.name for kind in kinds), *more}
        for name in [name for name in self._objects if name[0] not in served]:
            self._object_gone(name)
        for name in [name for name in self._uids if name[0] not in self._unlisted]:
            self._work_gone(name)
        self.troubles = {name: why for name, why in self.troubles.items() if name in self._unlisted}
        return [
            *(self._follow_objects(api, kind, resource) for kind, resource in served.items()),
            *(self._follow_works(api, kind) for kind in kinds),
            *(self._follow_more(api, kind, resource) for kind in kinds for resource in kind.more),
        ]

    def put(self, kind: Kind, raw: msgspec.Raw) -> None:
        """Take an object to start and stop; ignore older versions."""
        try:
            head = _head(raw)
            uid = kind.uid(head)
            before = self.works.get(uid)
            if before is not None and not _newer(head.resource_version, before[1].version_of(head.uid)):
                return
            name = kind.name, head.namespace, head.name
            others = [one for one, raw in self._kept.get(uid, {}).items() if one != head.uid and _is(raw, name)]
            if self._uids.get(name, uid) != uid or others:
                self._work_gone(name, kind)
            if kind.keeps:
                self._kept.setdefault(uid, {})[head.uid] = raw.copy()
            self._uids[name] = uid
        except Exception as exc:  # noqa: BLE001 - as in _read
            self._unusable(kind, exc)
            return
        self._read(kind, uid, [raw])

    def over(self, uid: str) -> bool:
        """Note that no pod of a finished work runs; return whether that is new."""
        if uid in self._over or uid not in self.works:
            return False
        self._over.add(uid)
        self._publish(*self.works[uid])
        return True

    def _read(self, kind: Kind, uid: str, raws: list[msgspec.Raw]) -> None:
        try:
            more = [one for resource in kind.more for one in self._more.get(resource.plural, {}).values()]
            work = kind.read([*(self._kept[uid].values() if kind.keeps else raws), *more])
            if work.refused:
                self._refuse(kind, work, uid)
                return
            if not work.finished:
                self._over.discard(uid)
            self._publish(kind, work)
        except Exception as exc:  # noqa: BLE001 - one object's error: keep its last version
            self._known.keep(Place(QUEUE_WORKLOAD.name, uid))
            self._unusable(kind, exc)
            return
        self.works[uid] = kind, work
        self.changed(uid)

    @staticmethod
    def _unusable(kind: Kind, exc: Exception) -> None:
        IGNORED.labels(kind.resource.plural, "object").inc()
        log.warning("cannot use a %s", kind.name, extra={"why": failure("read", exc)})

    def _refuse(self, kind: Kind, work: Work, uid: str) -> None:
        """Forget an object that must not be queued. One that runs keeps its quota until it ends or is deleted."""
        waits = any(one.plural in (self._unlisted or ()) for one in kind.more)
        if work.refused != "owned" and not waits:
            self.refused(kind, work)
        if work.halted:
            self._forget(uid)
        else:
            self._known.keep(Place(QUEUE_WORKLOAD.name, uid))

    async def _follow_works(self, api: ApiServer, kind: Kind) -> None:
        def whole(items: list[msgspec.Raw]) -> None:
            there = {(kind.name, one.namespace, one.name) for one in map(_head, items)}
            for name in [name for name in self._uids if name[0] == kind.name and name not in there]:
                self._work_gone(name, kind)
            for raw in items:
                self.put(kind, raw)
            self._listed(kind.name)

        def gone(namespace: str, name: str) -> None:
            self._work_gone((kind.name, namespace, name), kind)

        updates = follow(api, kind.resource, msgspec.Raw, labels=QUEUE_NAME)
        await inform(updates, whole, partial(self.put, kind), gone, partial(self.troubles.__setitem__, kind.name))

    async def _follow_more(self, api: ApiServer, kind: Kind, resource: Resource) -> None:
        """Watch objects that others depend on; each change reads these again."""
        found = self._more.setdefault(resource.plural, {})

        def put(raw: msgspec.Raw) -> None:
            head = _head(raw)
            found[resource.plural, head.namespace, head.name] = raw.copy()
            self._again(kind)

        def whole(items: list[msgspec.Raw]) -> None:
            found.clear()
            for raw in items:
                head = _head(raw)
                found[resource.plural, head.namespace, head.name] = raw.copy()
            self._again(kind)
            self._listed(resource.plural)

        def gone(namespace: str, name: str) -> None:
            found.pop((resource.plural, namespace, name), None)
            self._again(kind)

        updates = follow(api, resource, msgspec.Raw)
        await inform(updates, whole, put, gone, partial(self.troubles.__setitem__, resource.plural))

    def _again(self, kind: Kind) -> None:
        for uid in {uid for name, uid in self._uids.items() if name[0] == kind.name}:
            self._read(kind, uid, [])

    async def _follow_objects(self, api: ApiServer, kind: str, resource: Resource) -> None:
        def whole(items: list[Json]) -> None:
            there = {self._object(kind, item) for item in items}
            for name in [name for name in self._objects if name[0] == kind and name not in there]:
                self._object_gone(name)
            self._listed(kind)

        def gone(namespace: str, name: str) -> None:
            self._object_gone((kind, namespace, name))

        updates = follow(api, resource, dict)
        await inform(updates, whole, partial(self._object, kind), gone, partial(self.troubles.__setitem__, kind))

    def _listed(self, kind: str) -> None:
        if self._unlisted and kind in self._unlisted:
            acted = self.listed
            self._unlisted.discard(kind)
            if not self._unlisted:
                self._known.complete()
            if self.listed and not acted:
                for uid in self.works:
                    self.changed(uid)

    def _object(self, kind: str, item: dict[str, Any]) -> Name:
        metadata = item.get("metadata", {})
        name = kind, metadata.get("namespace", ""), metadata.get("name", "")
        try:
            one = msgspec.convert(item, KINDS[kind], strict=False)
            if one != self._objects.get(name):
                cohorts = [each for key, each in self._objects.items() if kind == key[0] == "Cohort" and key != name]
                QueueObjects([*cohorts, one])  # raises if the queue cannot use it
                self._put_object(name, one)
        except Exception as exc:  # noqa: BLE001 - one object's error: keep its last version
            IGNORED.labels(PLURALS[kind], "object").inc()
            self._known.keep(_place(name))
            why = failure("read", exc)
            log.warning("%s %s is not valid: its previous version stays in use", kind, name[2], extra={"why": why})
            return name
        status = item.get("status") or {}
        if kind in SHOWN and status != self.stands.get(Queue(*name)):
            self.stands[Queue(*name)] = status
            self.changes += 1
        return name

    def _object_gone(self, name: Name) -> None:
        one = self._objects.pop(name, None)
        self.stands.pop(Queue(*name), None)
        self._known.unwant(_place(name))
        if one is not None:
            self._put_object(name, one, gone=True)

    def _put_object(self, name: Name, one: QueueObject, *, gone: bool = False) -> None:
        self.changes += 1
        if not gone:
            self._objects[name] = one
        if isinstance(one, ResourceFlavorObject):
            self.flavors.pop(name[2], None)
            if not gone:
                self.flavors[name[2]] = one
        if isinstance(one, CLASSES):
            self._classes = QueueObjects([one for one in self._objects.values() if isinstance(one, CLASSES)])
            for kind, work in self.works.values():
                self._publish(kind, work)
        elif not gone and (made := published(one, "")) is not None:
            self._known.want(_place(name), encode(made.message))

    def _publish(self, kind: Kind, work: Work) -> None:
        pod_sets = work.pod_sets
        # Counts pod changes only: starting and stopping changes the object's own generation.
        generation = crc32(msgspec.json.encode(pod_sets))
        metadata = msgspec.structs.replace(work.metadata, generation=generation)
        made = self._classes.workload_with(kind.name, metadata, pod_sets, work.own_class)
        if made is None:
            if self.listed:
                log.warning("%s", self._classes.notes[-1].replace("the files", "the cluster"))
            self._classes.notes.clear()
            self._known.keep(Place(QUEUE_WORKLOAD.name, metadata.uid))
            return
        if (metadata.annotations or {}).get(ACTIVE) == "false" or work.held:
            made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, active=False))
        over = work.finished and (not work.foreign or metadata.uid in self._over)
        finished = [ObjectCondition(type="Finished", status="True", reason="JobFinished")] if over else None
        done = [ReclaimablePod(name=name, count=count) for name, count in work.done.items()] or None
        status = WorkloadStatus(conditions=finished, reclaimable_pods=done)
        record = published(msgspec.structs.replace(made, status=status), "")
        assert record is not None, "a Workload always has one"
        self._known.want(Place(QUEUE_WORKLOAD.name, record.key), encode(record.message))

    def _work_gone(self, name: Name, kind: Kind | None = None) -> None:
        """Forget a deleted object. A group loses one of its pods; ``kind`` None: all of its kind are gone."""
        uid = self._uids.pop(name, None)
        if uid is None:
            return
        kept = self._kept.get(uid, {})
        for one in [one for one, raw in kept.items() if _is(raw, name)]:
            del kept[one]
        if kept and kind is not None:
            self._read(kind, uid, [])
        else:
            self._kept.pop(uid, None)
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._over.discard(uid)
        self._known.unwant(Place(QUEUE_WORKLOAD.name, uid))
        if self.works.pop(uid, None) is not None:
            self.changed(uid)


def _place(name: Name) -> Place:
    """Return the place of an object's record, whose key is ``schemas.queue.spec_key``."""
    kind, namespace, own = name
    return Place(QUEUE_SPEC.name, f"{kind}/{namespace or 'default'}/{own}" if kind == "LocalQueue" else f"{kind}/{own}")


def _head(raw: msgspec.Raw) -> Meta:
    found: Head = answer_of(raw, Head, where="the object")
    return found.metadata


def _is(raw: msgspec.Raw, name: Name) -> bool:
    head = _head(raw)
    return (head.namespace, head.name) == name[1:]


def _newer(version: str, than: str) -> bool:
    """Return whether a resource version is later. A version that is not a number counts as later."""
    try:
        return integer_of(version, where="resourceVersion") > integer_of(than, where="resourceVersion")
    except TextError:
        return True
