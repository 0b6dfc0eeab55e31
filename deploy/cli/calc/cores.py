"""Cases of the rules of exclusive CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Whole, unique, unique_ids
from slacktide.schemas.inventory import Pod, Processor
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cores.allocate import Free, Ledger, allocate, available
from slacktide.streams.decisions.cores.pools import STATIC
from slacktide.streams.decisions.cores.schedule import Amounts, NodePolicy, Scheduled, Spec, divide, schedule, unheld
from slacktide.streams.decisions.cores.take import NO_CPUS, Cpus, TakeError, Topology, Wish, readable, written

Zones = Annotated[list["GivenZone"], msgspec.Meta(max_length=1_024)]
CPU_MILLI = 1_000


class GivenZone(Given, frozen=True, kw_only=True):
    """Amounts of a NUMA zone."""

    numa_node: Whole
    cpu_milli: Amount = 0
    mem_bytes: Amount = 0

    def amounts(self) -> Amounts:
        """Convert to the rule's type."""
        return Amounts(cpu_milli=self.cpu_milli, mem_bytes=self.mem_bytes)


class GivenHeld(Given, frozen=True, kw_only=True):
    """CPUs and amounts that a pod holds."""

    uid: str
    cpuset: str = ""
    exclusive_policy: str = ""
    zones: Zones | None = None


class GivenTopology(Given, frozen=True, kw_only=True):
    """A node's CPUs."""

    processors: list[Processor] | None

    def topology(self) -> Topology:
        """Convert to the rule's type. Raises CaseError if a CPU is given twice."""
        return topology_of(self.processors, "input")


def topology_of(processors: Sequence[Processor] | None, field: str) -> Topology:
    """Convert to the rule's type. Raises CaseError if a CPU is given twice."""
    unique((one.cpu for one in processors or ()), field + ".processors[{}].cpu", "CPU {} is given twice")
    return Topology(processors or ())


def ledger_of(allocated: Sequence[GivenHeld] | None) -> Ledger:
    """Convert to the rule's type; who holds no CPUs is left out."""
    unique_ids([one.uid for one in allocated or ()], "input.allocated")
    ledger = Ledger()
    for one in allocated or ():
        if cpus := readable(one.cpuset):
            ledger.put(one.uid, cpus, one.exclusive_policy)
    return ledger


class CoresTakeInput(GivenTopology, frozen=True, kw_only=True):
    """What a pod asks for, and what the node has."""

    cpus_wanted: Whole
    allocated: list[GivenHeld] | None = None
    reserved_cpus: str | None = None
    preferred_cpus: str | None = None
    preemptible_cpus: str | None = None
    max_ref_count: Whole = 1
    bind_policy: str = ""
    bind_policy_required: bool = False
    exclusive_policy: str = ""
    strategy: str = ""
    zones: Zones | None = None


def calc_cores_take(given: CoresTakeInput) -> Calculated:
    """Take CPUs for one pod."""
    topology = given.topology()
    free = Free(
        topology=topology,
        taken=ledger_of(given.allocated).taken,
        reserved=readable(given.reserved_cpus),
        preferred=readable(given.preferred_cpus),
        preemptible=readable(given.preemptible_cpus),
        max_ref=given.max_ref_count,
    )
    cpus, _ = free.cpus(Wish())
    zones = None if given.zones is None else [(one.numa_node, one.cpu_milli) for one in given.zones]
    text, error = _allocated(free, _wish(given), given.cpus_wanted, zones)
    because = _because(error or "taken", given.cpus_wanted, cpus)
    return Calculated(
        output={"available_cpus": written(cpus), "cpuset": text, "error": error or None}, because=[because]
    )


def _wish(given: CoresTakeInput | CoresZonesInput) -> Wish:
    return Wish(
        bind=given.bind_policy,
        required=given.bind_policy_required,
        exclusive=given.exclusive_policy,
        strategy=given.strategy,
    )


def _allocated(free: Free, wish: Wish, wanted: int, zones: Sequence[tuple[int, int]] | None) -> tuple[str | None, str]:
    try:
        return written(allocate(free, wish, wanted, zones)), ""
    except TakeError as exc:
        return None, str(exc)


def _because(bound: str, wanted: int, cpus: Cpus) -> Because:
    return Because(of="cpuset", bound=bound, terms={"wanted_count": wanted, "available_count": len(cpus)})


class GivenSpec(Given, frozen=True, kw_only=True):
    """The annotation resource-spec."""

    required_bind_policy: str | None = None
    preferred_bind_policy: str | None = None
    exclusive_policy: str | None = None


class GivenCoresPod(Given, frozen=True, kw_only=True):
    """A pod to schedule."""

    cpu_request_milli: Amount
    priority: Whole | None = None
    priority_class: str | None = None
    qos_class: str | None = None
    resource_spec: GivenSpec | None = None


class GivenCpuManager(Given, frozen=True, kw_only=True):
    """The kubelet's CPU manager."""

    policy: str = ""
    full_pcpus_only: str = ""
    reserved_cpus: str = ""


class GivenPinned(Given, frozen=True, kw_only=True):
    """A pod's CPUs in the annotation pod-cpu-allocs."""

    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class GivenSystemQos(Given, frozen=True, kw_only=True):
    """The annotation system-qos-resource."""

    cpuset: str = ""
    exclusive: bool | None = None


class GivenCoresNode(GivenTopology, frozen=True, kw_only=True):
    """A node, and what pods hold of it."""

    allocated: list[GivenHeld] | None = None
    cpu_bind_policy_label: str | None = None
    default_bind_policy: str = ""
    default_numa_allocate_strategy: str = ""
    kubelet_cpu_manager: GivenCpuManager = GivenCpuManager()
    kubelet_pod_cpus: list[GivenPinned] | None = None
    node_reserved_cpus: str | None = None
    numa_allocate_strategy_label: str | None = None
    system_qos: GivenSystemQos | None = None

    def reserved(self) -> Cpus:
        """Return the CPUs that no pod may get."""
        pinned = [one for one in self.kubelet_pod_cpus or () if one.managed_by_kubelet and one.uid]
        texts = [self.kubelet_cpu_manager.reserved_cpus, self.node_reserved_cpus, *(one.cpuset for one in pinned)]
        if self.system_qos is not None and self.system_qos.exclusive is not False:
            texts.append(self.system_qos.cpuset)
        return NO_CPUS.union(*map(readable, texts))


class CoresScheduleInput(Given, frozen=True, kw_only=True):
    """A pod and a node."""

    pod: GivenCoresPod
    node: GivenCoresNode


def calc_cores_schedule(given: CoresScheduleInput) -> Calculated:
    """Decide whether a pod binds CPUs of a node, and which."""
    pod, node = given.pod, given.node
    spec = pod.resource_spec or GivenSpec()
    kubelet, reserved = node.kubelet_cpu_manager, node.reserved()
    free = Free(
        topology=topology_of(node.processors, "input.node"),
        taken=ledger_of(node.allocated).taken,
        reserved=reserved,
    )
    found = schedule(
        Pod(
            uid="", namespace="", name="", qos_label=pod.qos_class, priority_class_label=pod.priority_class,
            priority=pod.priority, kube_qos="Guaranteed",
        ),
        pod.cpu_request_milli,
        Spec(
            required=spec.required_bind_policy or "",
            preferred=spec.preferred_bind_policy or "",
            exclusive=spec.exclusive_policy or "",
        ),
        free,
        NodePolicy(
            label=node.cpu_bind_policy_label or "",
            full_only=kubelet.policy == STATIC and kubelet.full_pcpus_only == "true",
            default=node.default_bind_policy,
            strategy=node.numa_allocate_strategy_label or node.default_numa_allocate_strategy,
        ),
    )  # fmt: skip
    text = None if found.cpus is None else written(found.cpus)
    return Calculated(
        output={
            "stage": found.stage,
            "reason": found.reason or None,
            "binds_cpus": found.binds,
            "cpuset": text,
            "reserved_cpus": written(reserved),
            "resource_spec_after": _spec_after(found, given.pod.resource_spec),
            "resource_status_after": None if text is None else {"cpuset": text},
        },
        because=[_because(found.reason or found.stage, pod.cpu_request_milli // CPU_MILLI, free.cpus(Wish())[0])],
    )


def _spec_after(found: Scheduled, given: GivenSpec | None) -> dict[str, str] | None:
    if found.stage != "ok" or (given is None and not found.binds):
        return None
    spec = {
        "requiredCPUBindPolicy": found.spec.required,
        "preferredCPUBindPolicy": found.spec.preferred,
        "preferredCPUExclusivePolicy": found.spec.exclusive,
    }
    return {name: value for name, value in spec.items() if value}


class GivenLedgerEvent(Given, frozen=True, kw_only=True):
    """A change of a pod."""

    type: Literal["assume", "unreserve", "pod_seen", "pod_gone"]
    uid: str
    cpuset: str | None = None
    exclusive_policy: str | None = None
    bound: bool = False
    phase: str = ""


class CoresLedgerInput(GivenTopology, frozen=True, kw_only=True):
    """Events, in order."""

    events: list[GivenLedgerEvent] | None
    max_ref_count: Whole = 1


def calc_cores_ledger(given: CoresLedgerInput) -> Calculated:
    """Follow which pods hold which CPUs."""
    topology, ledger = given.topology(), Ledger()
    after = []
    for event in given.events or ():
        _follow(ledger, event)
        cpus, _ = available(topology, ledger.taken, NO_CPUS, max_ref=given.max_ref_count)
        taken = {
            str(cpu): {"ref_count": one.references, "exclusive_policy": one.exclusive}
            for cpu, one in sorted(ledger.taken.items())
        }
        held = {uid: written(its) for uid, its in ledger.held.items()}
        after.append({"available_cpus": written(cpus), "cpus": taken, "held": held})
    return Calculated(output={"after_each_event": after}, because=[])


def _follow(ledger: Ledger, event: GivenLedgerEvent) -> None:
    exclusive = event.exclusive_policy or ""
    match event.type:
        case "assume":
            ledger.put(event.uid, readable(event.cpuset), exclusive)
        case "unreserve":
            ledger.drop(event.uid)
        case "pod_gone":
            ledger.pod_gone(event.uid)
        case "pod_seen":
            ledger.pod_seen(event.uid, bound=event.bound, phase=event.phase, cpuset=event.cpuset, exclusive=exclusive)


class GivenRequest(Given, frozen=True, kw_only=True):
    """What a pod requests."""

    cpu_milli: Amount = 0
    mem_bytes: Amount = 0


class CoresZonesInput(GivenTopology, frozen=True, kw_only=True):
    """A pod that is aligned to NUMA zones, and what these have."""

    zones: Zones
    affinity: Annotated[list[Whole], msgspec.Meta(max_length=1_024)]
    request: GivenRequest
    reserved_cpus: str | None = None
    allocated: list[GivenHeld] | None = None
    binds_cpus: bool = False
    bind_policy: str = ""
    bind_policy_required: bool = False
    exclusive_policy: str = ""
    strategy: str = ""


def calc_cores_zones(given: CoresZonesInput) -> Calculated:
    """Divide a request among the zones that a pod is aligned to."""
    free = Free(
        topology=given.topology(), taken=ledger_of(given.allocated).taken, reserved=readable(given.reserved_cpus)
    )
    held: dict[int, Amounts] = {}
    for one in (zone for pod in given.allocated or () for zone in pod.zones or ()):
        before = held.get(one.numa_node, Amounts())
        held[one.numa_node] = Amounts(
            cpu_milli=before.cpu_milli + one.cpu_milli, mem_bytes=before.mem_bytes + one.mem_bytes
        )
    zones = unheld({one.numa_node: one.amounts() for one in given.zones}, held)
    request = Amounts(cpu_milli=given.request.cpu_milli, mem_bytes=given.request.mem_bytes)
    wish = _wish(given) if given.binds_cpus else None
    parts, lacks = divide(request, zones, given.affinity, free, wish)
    reasons, text = list(lacks), ""
    if wish is not None and not reasons:
        cpus = [(zone, its.cpu_milli) for zone, its in parts.items()]
        found, error = _allocated(free, wish, -(-request.cpu_milli // CPU_MILLI), cpus)
        text, reasons = found or "", [error] if error else []
    shown = [
        {"numa_node": zone, "cpu_milli": its.cpu_milli, "memory_bytes": its.mem_bytes} for zone, its in parts.items()
    ]
    return Calculated(
        output={
            "cpuset": None if reasons else text,
            "reasons": reasons,
            "zones": None if reasons else shown,
        },
        because=[_because(", ".join(reasons) or "taken", request.cpu_milli // CPU_MILLI, free.cpus(Wish())[0])],
    )
