"""Keeps one placeholder for each Reservation, and its status. The leading bridge runs it."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.optional_kind import OptionalKind
from slacktide.agents.cluster.watching import inform
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.objects import Pod
from slacktide.agents.kubernetes.resource import (
    CONFLICT,
    NOT_FOUND,
    PODS,
    RESERVATIONS,
    ApiError,
    IgnoreStatus,
)
from slacktide.agents.publisher import Outbox
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import failure
from slacktide.schemas.reservation import ReservationOpen
from slacktide.schemas.text import time_text
from slacktide.schemas.topics import DEAD_LETTER, RESERVATION_OPEN
from slacktide.streams.decisions.reservation.objects import ALLOCATED, LABEL, Reservation, reservation_of
from slacktide.streams.decisions.reservation.opens import Opens
from slacktide.streams.decisions.reservation.step import (
    ENDED,
    PREFIX,
    Act,
    Opened,
    Placeholder,
    name_of,
    namespace_of,
    steps,
)
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, event
from slacktide.streams.tasks import until_one_ends

log = logging.getLogger(__name__)

SOURCE = "bridge"
LOOK_S, LEAST_S = 0.5, 0.05
"""How often Reservations are looked at without and with news."""
AGAIN_S = 5.0
"""How often each is looked at without news of it: time passes, and writes get lost."""


class Keeper:
    """All Reservations. ``image``: of placeholders."""

    def __init__(self, cluster: Cluster, image: str, clock: Clock) -> None:
        self._image, self._clock = image, clock
        self._all: dict[str, Reservation] = {}
        self._placeholders: dict[str, Placeholder] = {}
        """By the Reservation's uid."""
        self._opens, self._whole, self._listed = Opens(), False, False
        self._written: dict[str, bytes] = {}
        """The status that was last written, by uid."""
        self._due_s: dict[str, float] = {}
        self._news = asyncio.Event()
        self._kind = OptionalKind(RESERVATIONS, self._take, self._forget)
        self._reader = TailReader(
            cluster, (RESERVATION_OPEN.name,), client_id="slacktide-bridge-reservations", whole=True
        )
        self._following = Following(self._reader, away="Reservations are not opened", clock=clock)
        self._outbox = Outbox(cluster, (RESERVATION_OPEN.name, DEAD_LETTER.name), clock.wall_ms, source=SOURCE)
        self._pods_why = self._write_why = ""

    @property
    def trouble(self) -> str:
        """Return why Reservations are not kept; "": they are."""
        both = self._kind.trouble, self._pods_why, self._following.trouble, self._outbox.away, self._write_why
        return next(filter(None, both), "")

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        pods = follow(api, PODS, Pod, labels=LABEL)
        placeholders = inform(pods, self._pods, self._pod, self._pod_gone, self._pods_troubled)
        reading = self._following.run(lambda: None, self._read)
        try:
            await until_one_ends(self._kind.run(api), placeholders, reading, self._outbox.run(), self._keep(api))
        finally:
            await self._outbox.close()

    def _take(self, item: Mapping[str, Any]) -> str:
        reservation = reservation_of(item)
        self._all[reservation.uid] = reservation
        self._look_at(reservation.uid)
        return reservation.uid

    def _forget(self, uid: str) -> None:
        """Its placeholder is deleted by Kubernetes: the Reservation owns it."""
        self._all.pop(uid, None)
        self._written.pop(uid, None)
        self._due_s.pop(uid, None)
        self._close(uid)

    def _pods(self, pods: list[Pod]) -> None:
        self._placeholders.clear()
        for pod in pods:
            self._pod(pod)
        self._listed = True

    def _pod(self, pod: Pod) -> None:
        metadata = pod.metadata
        uid = (metadata.labels or {}).get(LABEL, "")
        if metadata.name != name_of(uid):
            return  # somebody else's
        self._placeholders[uid] = Placeholder(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            node=pod.spec.node_name or "",
            ended=pod.ended,
            leaving=metadata.deletion_timestamp is not None,
        )
        self._look_at(uid)

    def _pod_gone(self, namespace: str, name: str) -> None:
        uid = name.removeprefix(PREFIX)
        known = self._placeholders.get(uid)
        if known is not None and known.namespace == namespace:
            del self._placeholders[uid]
            self._look_at(uid)

    def _pods_troubled(self, why: str) -> None:
        self._pods_why = why

    def _look_at(self, uid: str) -> None:
        self._due_s[uid] = 0.0
        self._news.set()

    async def _read(self, records: list[Record], _: float) -> None:
        for record in records:
            uid = (record.key or b"").decode(errors="replace")
            try:
                self._opens.take(uid, None if record.value is None else decode(record.value, ReservationOpen))
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                self._outbox.to_dead_letter(record, failure("reserve", exc))
            self._look_at(uid)
        if not self._whole and await self._reader.caught_up():
            self._whole = True

    async def _keep(self, api: ApiServer) -> None:
        while True:
            if self._whole and self._listed and self._kind.listed:
                await self._look(api)
            await asyncio.sleep(LEAST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            self._news.clear()

    async def _look(self, api: ApiServer) -> None:
        now_s = mono_s(self._clock)
        for uid, reservation in list(self._all.items()):
            if now_s < self._due_s.get(uid, 0.0) and uid not in self._opens.of:
                continue
            self._due_s[uid] = now_s + AGAIN_S
            try:
                opened = await self._opened(api, uid)
                acts = steps(
                    reservation, self._placeholders.get(uid), opened, self._image, self._clock.wall_ms() / 1_000
                )
                for act in acts:
                    await self._do(api, reservation, act, opened)
                self._write_why = ""
            except ApiError as exc:
                if not self._write_why:
                    log.warning("cannot keep a Reservation", extra={"reservation": reservation.name, "why": str(exc)})
                self._write_why = str(exc)
            if reservation.phase in ENDED:
                self._close(uid)

    async def _opened(self, api: ApiServer, uid: str) -> Opened | None:
        """Return the pod for which it was opened, as the API server has it now."""
        record = self._opens.of.get(uid)
        if record is None:
            return None
        pod: Pod | None = None
        with IgnoreStatus(NOT_FOUND):
            pod = await api.get(PODS, record.name, Pod, namespace=record.namespace)
        there = pod is not None and pod.metadata.uid == record.pod_uid and not pod.ended
        return Opened(
            pod_uid=record.pod_uid,
            namespace=record.namespace,
            name=record.name,
            there=there,
            node=(pod.spec.node_name or "") if there and pod is not None else "",
            on=record.node,
            marked=pod is not None and ALLOCATED in (pod.metadata.annotations or {}),
        )

    async def _do(self, api: ApiServer, reservation: Reservation, act: Act, opened: Opened | None) -> None:
        namespace = namespace_of(reservation)
        match act.kind:
            case "create":
                with IgnoreStatus(CONFLICT):
                    await api.create(PODS, act.body, dict[str, Any], namespace=namespace)
            case "delete":
                placeholder = self._placeholders[reservation.uid]
                with IgnoreStatus(NOT_FOUND, CONFLICT):
                    await api.delete(PODS, placeholder.name, namespace=placeholder.namespace, body=act.body)
            case "mark":
                assert opened is not None
                mark = msgspec.json.encode(act.body).decode()
                patch = {"metadata": {"uid": opened.pod_uid, "annotations": {ALLOCATED: mark}}}
                with IgnoreStatus(NOT_FOUND, CONFLICT, 422):
                    await api.patch(PODS, opened.name, patch, dict, namespace=opened.namespace, sub="status")
            case "status":
                await self._write_status(api, reservation, act.body)
            case "forget":
                with IgnoreStatus(NOT_FOUND):
                    await api.delete(RESERVATIONS, reservation.name)

    async def _write_status(self, api: ApiServer, reservation: Reservation, body: dict[str, Any]) -> None:
        encoded = msgspec.json.encode(body)
        if self._written.get(reservation.uid) == encoded and body["phase"] == reservation.phase:
            return
        at = time_text(self._clock.wall_ms())
        conditions = [{**one, "lastTransitionTime": at} for one in body["conditions"]]
        with IgnoreStatus(NOT_FOUND):
            patch = {"metadata": {"uid": reservation.uid}, "status": {**body, "conditions": conditions}}
            await api.patch(RESERVATIONS, reservation.name, patch, dict, sub="status")
            self._written[reservation.uid] = encoded

    def _close(self, uid: str) -> None:
        """Forget for which pod a Reservation was opened that is over."""
        if uid in self._opens.of:
            now_ms = self._clock.wall_ms()
            event_id = f"reservation/{uid}/{now_ms}"
            self._outbox.put(event(RESERVATION_OPEN.name, uid, None, source=SOURCE, event_id=event_id, event_ms=now_ms))
