"""Reservations for the extender: opens one for a pending owner, and keeps its room until the owner is bound. Pure.

A pod that a kube-scheduler finds no node for never reaches an extender. So a reservation is opened as soon as the watch
shows a pod that may use it. docs/reservations.md has the rules.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter

import msgspec

from slacktide.agents.cluster.scheduler.gang_group import Held, Now
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.errors import CaseError, TextError
from slacktide.schemas.reservation import ReservationOpen
from slacktide.streams.decisions.reservation.match import AVAILABLE, choices, demanded
from slacktide.streams.decisions.reservation.objects import Claimant, Reservation
from slacktide.streams.decisions.reservation.opens import Opens

OPENING, NONE, INVALID = "reservation_opening", "reservation_none", "reservation_invalid"
LOST_S = 10.0
"""A pod that was not bound within this time after its room is free gives the reservation back."""
AGAIN_S = 60.0
"""Then it is not opened for this pod again before this."""
PUBLISH_S = 2.0
"""A record of a reservation is read within this time after it was proposed, or after its placeholder is gone."""
WAKE_S = 2.0
LEFT = "left-of-"
"""Begins the name under which the room of a placeholder counts that is gone."""


class Reservations:
    """All reservations. ``publish`` queues a record of one."""

    def __init__(self, view: View, publish: Callable[[str, ReservationOpen], None]) -> None:
        self.enabled = True
        self._view, self._publish = view, publish
        self._all: dict[str, Reservation] = {}
        self._opens = Opens()
        self._pending: dict[str, SchedulerPod] = {}
        """By uid: pods that may be owners."""
        self._uids: dict[tuple[str, str], str] = {}
        self._placeholders: dict[tuple[str, str], SchedulerPod] = {}
        self._left_s: dict[str, float] = {}
        """Until when the room of a placeholder that is gone counts, by the reservation's uid."""
        self._proposed: dict[str, str] = {}
        """The pod for which a record is on its way, by the reservation's uid."""
        self._proposed_s: dict[str, float] = {}
        self._free_s: dict[str, float] = {}
        """When the room of an opened reservation became free, by the reservation's uid."""
        self._woken: dict[str, float] = {}
        self._lost: dict[tuple[str, str], float] = {}
        """When a pod last gave a reservation back."""

    def take(self, reservation: Reservation) -> None:
        """Add or update a reservation."""
        self._all[reservation.uid] = reservation
        if reservation.phase != AVAILABLE:
            self._free_left(reservation.uid)

    def forget(self, uid: str) -> None:
        """Remove a reservation."""
        self._all.pop(uid, None)
        self._free_left(uid)

    def changed(self, pod: SchedulerPod, now: Now) -> None:
        """Add or update a pod."""
        if pod.placeholder_of:
            if pod.holds or not pod.node:
                self._placeholders[pod.key] = pod
            else:
                self.gone(pod.key, now)
            return
        if self._uids.get(pod.key, pod.uid) != pod.uid:
            self.gone(pod.key, now)
        if pod.claimant is not None and not pod.node:
            self._pending[pod.uid], self._uids[pod.key] = pod, pod.uid
        elif pod.uid in self._pending:
            self._leave(pod.uid, pod.key, pod.node, now)

    def whole(self, pods: Iterable[SchedulerPod], now: Now) -> None:
        """Replace all pods."""
        listed = {pod.key: pod for pod in pods}
        for key in self._uids.keys() - listed.keys():
            self.gone(key, now)
        for pod in listed.values():
            self.changed(pod, now)
        for key in self._placeholders.keys() - listed.keys():  # last: now it is known who may want the room
            self.gone(key, now)

    def gone(self, key: tuple[str, str], now: Now) -> None:
        """Remove a pod. If it was the placeholder of an opened reservation, its room is the owner's at once."""
        placeholder = self._placeholders.pop(key, None)
        if placeholder is not None:
            self._pass_on(placeholder, now)
        elif key in self._uids:
            self._leave(self._uids[key], key, "", now)

    def _pass_on(self, placeholder: SchedulerPod, now: Now) -> None:
        """Give the room to the owner. Its record may come later than the end of the placeholder: then nobody has it."""
        uid = placeholder.placeholder_of
        opened, reservation = self._opens.of.get(uid), self._all.get(uid)
        if opened is not None:
            self._enter(uid, opened, now)
        elif placeholder.node and reservation is not None and self._is_wanted(reservation):
            self._left_s[uid] = now.mono_s + PUBLISH_S
            asked = placeholder.asked  # as a pod of its own: what is still to come of the placeholder does not end it
            room = replace(asked, pod=msgspec.structs.replace(asked.pod, uid=uid, name=LEFT + uid))
            self._view.assume(room, placeholder.node, now_s=now.mono_s, at_s=now.wall_ms / 1_000, planned=True)

    def _free_left(self, uid: str) -> None:
        if self._left_s.pop(uid, None) is not None:
            self._view.release(uid)

    def _is_wanted(self, reservation: Reservation) -> bool:
        """Return whether a pending pod may use it, so that any replica may have opened it."""
        for pod in self._pending.values():
            away = pod.member is not None or self.holds(pod.uid) or (pod.uid, reservation.uid) in self._lost
            with suppress(CaseError, TextError):
                if not away and pod.claimant is not None and choices(pod.claimant, [reservation]):
                    return True
        return False

    def _enter(self, uid: str, opened: ReservationOpen, now: Now) -> None:
        self._free_left(uid)
        self._free_s.setdefault(uid, now.mono_s)
        pod = self._pending.get(opened.pod_uid)
        if pod is not None:
            self._view.assume(
                pod.asked, opened.node, now_s=now.mono_s, at_s=now.wall_ms / 1_000, binding_s=LOST_S, planned=True
            )

    def _leave(self, pod_uid: str, key: tuple[str, str], node: str, now: Now) -> None:
        """A pod is bound, or gone."""
        self._pending.pop(pod_uid, None)
        self._uids.pop(key, None)
        opened = self._opens.for_pod(pod_uid)
        if opened is not None and node != opened.node:
            self._end(opened, f"the pod was bound to {node}" if node else "the pod is gone", now)

    def _end(self, opened: ReservationOpen, why: str, now: Now) -> None:
        self._view.release(opened.pod_uid)
        self._lost[opened.pod_uid, opened.reservation_uid] = now.mono_s
        ended = ReservationOpen(
            reservation=opened.reservation, reservation_uid=opened.reservation_uid, node=opened.node,
            pod_uid=opened.pod_uid, namespace=opened.namespace, name=opened.name,
            decided_ms=now.wall_ms, ended=True, why=why,
        )  # fmt: skip
        self._publish(opened.reservation_uid, ended)

    def read(self, uid: str, record: ReservationOpen | None, now: Now) -> None:
        """Apply a record, in the order of Kafka."""
        self._opens.take(uid, record)
        self._proposed.pop(uid, None)
        opened = self._opens.of.get(uid)
        if opened is None:
            self._free_s.pop(uid, None)
            self._free_left(uid)
        elif uid not in self._held:
            self._enter(uid, opened, now)

    @property
    def rooms(self) -> set[str]:
        """Nodes with placeholders. A kube-scheduler may know of the end of one first, and offer its room to any pod."""
        return {one.node for one in self._placeholders.values()}

    @property
    def _held(self) -> set[str]:
        """Reservations whose placeholder is there."""
        return {one.placeholder_of for one in self._placeholders.values()}

    def holds(self, pod_uid: str) -> bool:
        """Return whether a reservation is opened for the pod."""
        return self._opens.for_pod(pod_uid) is not None

    def ask(self, pod: SchedulerPod, nodes: Sequence[str], now: Now) -> Held | str:
        """Return why a pod must wait, or the node that is held for it; "": any that fits."""
        if not self.enabled or pod.claimant is None or self._view.dry_run:
            return ""
        opened = self._opens.for_pod(pod.uid)
        if opened is None:
            return self._demand(pod, pod.claimant, now)
        where = f"{opened.reservation} on {opened.node}"
        if opened.reservation_uid in self._held:
            return Held(OPENING, f"{where}: its placeholder is being deleted")
        if opened.node in nodes:
            return opened.node
        return Held(OPENING, f"{where}: the kube-scheduler does not offer this node yet")

    def _demand(self, pod: SchedulerPod, claimant: Claimant, now: Now) -> Held | str:
        """Return why a pod waits for which none is open: one may be, or it demands one."""
        if pod.member is not None:
            return ""
        try:
            affinity, found = demanded(claimant), choices(claimant, self._free())
        except (CaseError, TextError) as exc:
            return Held(INVALID, str(exc))
        found = [one for one in found if (pod.uid, one.uid) not in self._lost]
        if found:
            self._open(pod, found[0], now)
        if found or pod.uid in self._proposed.values():
            return Held(OPENING, "a reservation is being opened")
        if affinity is None:
            return ""
        named = f"reservation {affinity.name} is not" if affinity.name else "no reservation is"
        return Held(NONE, f"{named} available to it")

    def _free(self) -> Iterable[Reservation]:
        held = self._held
        return [
            one for uid, one in self._all.items()
            if one.phase == AVAILABLE and uid in held and uid not in self._opens.of and uid not in self._proposed
        ]  # fmt: skip

    def tick(self, now: Now) -> list[SchedulerPod]:
        """Open reservations, and give lost ones back. Return pods that a kube-scheduler is made to try again."""
        for uid in [uid for uid, until_s in self._left_s.items() if now.mono_s >= until_s]:
            self._free_left(uid)
        if not self.enabled or self._view.dry_run:
            return []
        late = [uid for uid in self._proposed if now.mono_s >= self._proposed_s[uid] + PUBLISH_S]
        for uid in late:
            del self._proposed[uid]
        self._lost = {both: at_s for both, at_s in self._lost.items() if now.mono_s < at_s + AGAIN_S}
        if any(self._free()):
            for pod in sorted(self._pending.values(), key=attrgetter("order")):
                if pod.claimant is not None and self._opens.for_pod(pod.uid) is None:
                    self._demand(pod, pod.claimant, now)
        return self._awaited(now)

    def _open(self, pod: SchedulerPod, reservation: Reservation, now: Now) -> None:
        self._proposed[reservation.uid], self._proposed_s[reservation.uid] = pod.uid, now.mono_s
        namespace, name = pod.key
        self._publish(
            reservation.uid,
            ReservationOpen(
                reservation=reservation.name, reservation_uid=reservation.uid, node=reservation.node, pod_uid=pod.uid,
                namespace=namespace, name=name, decided_ms=now.wall_ms,
            ),
        )  # fmt: skip

    def _awaited(self, now: Now) -> list[SchedulerPod]:
        wake = []
        for uid, free_s in list(self._free_s.items()):
            opened = self._opens.of[uid]
            pod = self._pending.get(opened.pod_uid)
            if pod is None:
                continue  # bound, and the bridge closes the reservation
            if now.mono_s >= free_s + LOST_S:
                self._end(opened, f"it was not bound within {LOST_S:g} s", now)
                del self._free_s[uid]
            elif now.mono_s >= self._woken.get(pod.uid, free_s - WAKE_S) + WAKE_S:
                self._woken[pod.uid] = now.mono_s
                wake.append(pod)
        self._woken = {uid: at_s for uid, at_s in self._woken.items() if uid in self._pending}
        return wake
