"""Places that are held for pods before a kube-scheduler binds them: of gangs and of reservations."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.optional_kind import OptionalKind
from slacktide.agents.cluster.scheduler.decision_log import DecisionOutbox, DecisionReader
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.pod_writer import PodWriter
from slacktide.agents.cluster.scheduler.reservations import Reservations
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.words import worded
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import RESERVATIONS, Resource
from slacktide.agents.together import until_one_ends
from slacktide.schemas.connection import Cluster
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.reservation import ReservationOpen
from slacktide.schemas.topics import GANG_PLAN, RESERVATION_OPEN
from slacktide.streams.decisions.gang.membership import Kind, Options, options_of_group
from slacktide.streams.decisions.queue.kinds.manifest import Part
from slacktide.streams.decisions.reservation.objects import reservation_of

POD_GROUPS: Mapping[Kind, Resource] = {
    "pod_group": Resource(group="scheduling.sigs.k8s.io", version="v1alpha1", plural="podgroups"),
    "x_pod_group": Resource(group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups"),
}
POLL_S = 0.1


class HeldPlaces:
    """Gangs and reservations with what they read and write.

    ``pods_known``: whether pods were listed.
    """

    def __init__(
        self, cluster: Cluster, view: View, pods_known: Callable[[], bool], clock: Clock, replica: str,
        *, gangs: bool, reservations: bool,
    ) -> None:  # fmt: skip
        self._outbox = outbox = DecisionOutbox(cluster, clock.wall_ms)
        self.gangs = Gangs(view, replica, partial(outbox.publish, GANG_PLAN), worded)
        self.reservations = Reservations(view, partial(outbox.publish, RESERVATION_OPEN))
        self.gangs.enabled, self.reservations.enabled = gangs, reservations
        self._news = asyncio.Event()
        self._readers: list[DecisionReader[Any]] = []
        self._kinds: list[OptionalKind] = []
        rest = lambda: pods_known() and all(one.listed for one in self._kinds), outbox.to_dead_letter, self._news, clock
        if gangs:
            self._readers.append(DecisionReader(cluster, GANG_PLAN, GangPlan, self.gangs.read, *rest))
            self._kinds += [pod_groups(kind, self.gangs) for kind in POD_GROUPS]
        if reservations:
            self._readers.append(
                DecisionReader(cluster, RESERVATION_OPEN, ReservationOpen, self.reservations.read, *rest)
            )
            self._kinds.append(OptionalKind(RESERVATIONS, self._take_reservation, self.reservations.forget))
        self._writer = PodWriter(self.gangs, self.reservations, self._news, clock, replica)

    @property
    def lacking(self) -> str:
        """Return why places are not known yet; "": they are."""
        reader = next((one for one in self._readers if not one.whole), None)
        return "" if reader is None else reader.following.trouble or "held places are being read"

    @property
    def log_trouble(self) -> str:
        """Return why Kafka has not all decisions, or they cannot be read; "": all is well."""
        return self._outbox.away or next((one.following.trouble for one in self._readers if one.following.trouble), "")

    @property
    def trouble(self) -> str:
        """Return what cannot be read or written at the API server; "": all can."""
        return "; ".join(one.trouble for one in self._kinds if one.trouble) or self._writer.trouble

    def holds(self, uid: str) -> bool:
        """Return whether a place is held for the pod."""
        return self.gangs.holds(uid) or self.reservations.holds(uid)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        if not self._readers:
            return
        reading = [*(one.run() for one in self._readers), *(one.run(api) for one in self._kinds)]
        await until_one_ends(self._outbox.run(), *reading, self._write(api))

    async def _write(self, api: ApiServer) -> None:
        while self.lacking:  # noqa: ASYNC110 - a plain value, filled by the readers
            await asyncio.sleep(POLL_S)
        await self._writer.run(api)

    async def close(self) -> None:
        """Send the rest at shutdown."""
        await self._outbox.close()

    def _take_reservation(self, item: Mapping[str, Any]) -> str:
        reservation = reservation_of(item)
        self.reservations.take(reservation)
        return reservation.uid


def pod_groups(kind: Kind, gangs: Gangs) -> OptionalKind:
    """Follow the PodGroups of one API group."""

    def take(item: Mapping[str, Any]) -> str:
        gang, options = pod_group_of(item)
        gangs.take_options(kind, gang, options)
        return gang

    return OptionalKind(POD_GROUPS[kind], take, lambda gang: gangs.take_options(kind, gang, None))


def pod_group_of(item: Mapping[str, Any]) -> tuple[str, Options]:
    """Return the id of a PodGroup and what it asks for. Raises CaseError."""
    part = Part(dict(item))
    metadata, spec = part["metadata"], part["spec"]
    gang = f"{metadata['namespace'].text()}/{metadata['name'].text()}"
    annotations = metadata["annotations"].texts()
    least, timeout_s, resources = (
        spec["minMember"].value,
        spec["scheduleTimeoutSeconds"].value,
        spec["minResources"].map(),
    )
    return gang, options_of_group(gang, least, timeout_s, annotations, resources)
