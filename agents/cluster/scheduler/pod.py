"""Reads a pod for placement. Pure."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

import msgspec

from slacktide.agents.kubernetes.objects import Json, Pod
from slacktide.schemas import inventory
from slacktide.schemas.allocatable import OFFERED
from slacktide.schemas.errors import BadMessageError, CaseError, QuantityError, TextError
from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy.selector import matches
from slacktide.schemas.queue_objects import ContainerSpec, Quantities
from slacktide.schemas.text import time_ms_of
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES, CoresPod
from slacktide.streams.decisions.cores.schedule import spec_of
from slacktide.streams.decisions.gang.membership import GATE, SCHEDULER, Membership, membership
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwarePod
from slacktide.streams.decisions.numa.placement import ZonedPod, zoned
from slacktide.streams.decisions.numa.topology import CPU, Container, Qos
from slacktide.streams.decisions.numa.topology import Pod as ZonesPod
from slacktide.streams.decisions.queue.kinds.manifest import Part
from slacktide.streams.decisions.reservation.objects import AFFINITY, EXACT, LABEL, Claimant, Ref, label_selector

Order = tuple[int, int, float, tuple[str, str]]
SINCE = ".status.conditions: lastTransitionTime"
QOS: Final[Mapping[str, Qos]] = {qos: qos for qos in get_args(Qos)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod as one of a gang."""

    of: Membership
    gated: bool
    """Whether it waits for its gang before any scheduler sees it."""
    kept: bool
    """Whether it cannot be placed for another reason: another gate, or its deletion."""
    shape: bytes
    """Hash of what kube-scheduler's own rules read of it."""
    apart: bool
    """Whether two pods of this shape cannot share a node."""
    nominated: str
    """The node on which victims end for it; "": none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPod:
    """A pod, its node and its scheduler."""

    asked: LoadAwarePod
    node: str
    """"": not bound."""
    scheduler: str
    created_s: float | None = None
    """UTC epoch; None: unknown."""
    member: Member | None = None
    """None: it is in no gang."""
    claimant: Claimant | None = None
    """What reservations read of it while it is pending; None: it cannot use any."""
    placeholder_of: str = ""
    """Uid of the Reservation whose room it holds; "": none."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.asked.pod.uid

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.asked.pod.namespace, self.asked.pod.name

    @property
    def order(self) -> Order:
        """Which pod goes first: highest priority, then highest sub-priority, then oldest."""
        pod = self.asked.pod
        return -(pod.priority or 0), -(pod.sub_priority or 0), self.created_s or 0.0, self.key

    @property
    def holds(self) -> bool:
        """Whether it is bound and has not terminated."""
        return bool(self.node) and self.asked.pod.phase not in ENDED_PHASES

    @property
    def without_benefit(self) -> bool:
        """Whether it requests batch or mid resources from a scheduler without load scoring."""
        requests = self.asked.pod.requests
        return self.scheduler != SCHEDULER and any(getattr(requests, field) for field in OFFERED)


def parsed(item: Pod, noted: Callable[[str], object] = lambda _: None) -> SchedulerPod:
    """Read a pod; ``noted`` as in ``read_pod``. Raises BadMessageError if a field is invalid."""
    pod = read_pod(msgspec.to_builtins(item), noted)
    metadata, spec, status = item.metadata, item.spec, item.status
    since = {one.type: one.last_transition_time for one in status.conditions or () if one.status == "True"}
    return SchedulerPod(
        asked=LoadAwarePod(
            # A static pod's cgroups are named by its manifest's hash, which copies of the manifest share.
            pod=msgspec.structs.replace(pod, uid=metadata.uid or pod.uid),
            scheduled_s=_epoch_s(since.get("PodScheduled"), SINCE),
            initialized_s=_epoch_s(since.get("Initialized"), SINCE),
            daemonset=any(one.kind == "DaemonSet" for one in metadata.owner_references or ()),
            # Records of zones name a static pod by its manifest's hash; no scheduler places it.
            zoned=zoned_pod(item, pod.kube_qos) if pod.uid == metadata.uid else None,
            cores=cores_pod(item, pod),
        ),
        node=spec.node_name or "",
        scheduler=spec.scheduler_name or "",
        created_s=_epoch_s(metadata.creation_timestamp, ".metadata.creationTimestamp"),
        member=member_of(item),
        claimant=claimant_of(item),
        placeholder_of=(metadata.labels or {}).get(LABEL, ""),
    )


def _epoch_s(time: str | None, path: str) -> float | None:
    """In UTC epoch seconds; None: unknown."""
    try:
        return time_ms_of(time, where=path) / 1_000 if time else None
    except TextError as exc:
        raise BadMessageError("Pod", str(exc)) from exc


def cores_pod(item: Pod, pod: inventory.Pod) -> CoresPod | None:
    """Return what decides which CPUs a pod gets for itself; None: it does not request any."""
    if not any(RESOURCE_CORES in requests for _, requests in item.requests().containers):
        return None
    spec = spec_of(item.metadata.annotations or {})
    return CoresPod(pod.qos_label, pod.priority_class_label, pod.priority, pod.requests.cpu_milli or 0, spec)


def member_of(item: Pod) -> Member | None:
    """Return a pod as one of a gang; None: it is in none."""
    metadata, spec = item.metadata, item.spec
    labels, native = metadata.labels or {}, ""
    if spec.scheduling_group is not None:
        native = spec.scheduling_group.pod_group_name
    elif spec.workload_ref is not None:
        native = spec.workload_ref.name
    of = membership(metadata.namespace, labels, metadata.annotations or {}, native)
    if of is None:
        return None
    gates = [one.name for one in spec.scheduling_gates or ()]
    claims = [one for one in spec.volumes or () if "persistentVolumeClaim" in one or "ephemeral" in one]
    asked = item.requests()
    shape = [
        [requests for _, requests in (*asked.containers, *asked.inits)],
        [asked.overhead, asked.whole, spec.priority, spec.node_selector, spec.affinity],
        [spec.tolerations, spec.topology_spread_constraints, metadata.uid if claims else ""],
    ]
    return Member(
        of=of,
        gated=GATE in gates,
        kept=any(one != GATE for one in gates) or metadata.deletion_timestamp is not None,
        shape=hashlib.blake2b(msgspec.json.encode(shape), digest_size=8).digest(),
        apart=_keeps_apart(spec.affinity or {}, labels),
        nominated=item.status.nominated_node_name or "",
    )


def claimant_of(item: Pod) -> Claimant | None:
    """Return what reservations read of a pending pod; None: it cannot use any."""
    metadata, annotations = item.metadata, item.metadata.annotations or {}
    if item.spec.node_name or item.ended or item.spec.scheduler_name != SCHEDULER or LABEL in (metadata.labels or {}):
        return None
    asked = item.requests()
    total: Counter[str] = Counter()
    for _, requests in asked.containers:
        total.update(_amounts(requests))
    for _, requests in asked.inits:
        total |= Counter(_amounts(requests))
    owners = metadata.owner_references or ()
    return Claimant(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        labels=metadata.labels or {},
        owners=tuple(
            Ref(controller=one.controller, uid=one.uid, name=one.name, kind=one.kind, api_version=one.api_version)
            for one in owners
        ),
        requests=total,
        affinity=annotations.get(AFFINITY),
        exact=annotations.get(EXACT),
    )


HOSTNAME = "kubernetes.io/hostname"


def _keeps_apart(affinity: Json, labels: Mapping[str, str]) -> bool:
    """Return whether a required rule keeps pods with these labels away from each other's nodes."""
    rules = Part(affinity)["podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"]
    try:
        return any(
            one["topologyKey"].text() == HOSTNAME and _selects(one["labelSelector"], labels) for one in rules.parts()
        )
    except CaseError:
        return False  # the API server accepts none of these


def _selects(given: Part, labels: Mapping[str, str]) -> bool:
    try:
        return given.there and matches(label_selector(given), labels)
    except CaseError:
        return False


def zoned_pod(item: Pod, kube_qos: str) -> ZonedPod | None:
    """Return what the pod requests of zones. Raises BadMessageError if an amount is invalid."""
    qos, asked = QOS.get(kube_qos, "BestEffort"), item.requests()
    each = (*asked.inits, *asked.containers)
    if qos != "Guaranteed" and not any("/" in name for _, requests in each for name in requests):
        return None
    return zoned(
        ZonesPod(
            qos=qos,
            containers=_containers(asked.containers),
            inits=_containers(asked.inits),
            overhead=_amounts(asked.overhead),
            pod_level=None if asked.whole is None else _amounts(asked.whole),
        )
    )


def _containers(asked: Iterable[tuple[ContainerSpec, Quantities]]) -> list[Container]:
    return [
        Container(name=one.name, requests=_amounts(requests), sidecar=one.restart_policy == "Always")
        for one, requests in asked
    ]


def _amounts(written: Quantities) -> dict[str, int]:
    try:
        return {name: cpu_milli(amount) if name == CPU else whole(amount) for name, amount in written.items()}
    except QuantityError as exc:
        raise BadMessageError("Pod", f".spec: resources: {exc}") from exc
