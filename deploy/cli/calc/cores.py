"""Cases of the rules of exclusive CPUs."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Processors, amounts_out, unique_ids
from slacktide.deploy.cli.calc.forms import Amount, By, Flat, Form, Given, Nullable, Whole
from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cores.allocate import Free, Ledger, allocate, available
from slacktide.streams.decisions.cores.pools import STATIC
from slacktide.streams.decisions.cores.schedule import (
    SHARED_MIN,
    Amounts,
    NodePolicy,
    Scheduled,
    Spec,
    divide,
    schedule,
    unheld,
)
from slacktide.streams.decisions.cores.take import NO_CPUS, Cpus, TakeError, Topology, Wish, readable, written

CPU_MILLI = 1_000
Corrected = Nullable[bool]
"""Decide as Slacktide, not as the reference."""
CpuList = Nullable[Annotated[Cpus, By(lambda text, _: readable(text), str)]]


class _Zone(Given, frozen=True, kw_only=True):
    numa_node: Whole
    amounts: Flat[Annotated[Amounts, Form(strict=True)]]


Zones = Annotated[list[_Zone], msgspec.Meta(max_length=1_024)]


class _Held(Given, frozen=True, kw_only=True):
    uid: str
    cpuset: str = ""
    exclusive_policy: str = ""
    zones: Nullable[Zones] = []


Allocated = Nullable[Sequence[_Held]]


def ledger_of(allocated: Sequence[_Held], *, corrected: bool) -> Ledger:
    """Convert to the rule's type; who holds no CPUs is left out."""
    unique_ids([one.uid for one in allocated], "input.allocated")
    ledger = Ledger(corrected=corrected)
    for one in allocated:
        if cpus := readable(one.cpuset):
            ledger.put(one.uid, cpus, one.exclusive_policy)
    return ledger


GivenWish = Flat[Annotated[Wish, Form(strict=True)]]


class _CoresTakeInput(Given, frozen=True, kw_only=True):
    wish: GivenWish
    processors: Processors
    corrected: Corrected = False
    cpus_wanted: Whole
    allocated: Allocated = []
    reserved_cpus: CpuList = NO_CPUS
    preferred_cpus: CpuList = NO_CPUS
    preemptible_cpus: CpuList = NO_CPUS
    max_ref_count: Whole = 1
    shared_min_count: Whole = 0
    zones: Zones | None = None


def calc_cores_take(given: _CoresTakeInput) -> Calculated:
    """Take CPUs for one pod."""
    free = Free(
        topology=Topology(given.processors, corrected=given.corrected),
        taken=ledger_of(given.allocated, corrected=given.corrected).taken,
        reserved=given.reserved_cpus,
        preferred=given.preferred_cpus,
        preemptible=given.preemptible_cpus,
        max_ref=given.max_ref_count,
        shared_min=given.shared_min_count,
    )
    cpus, _ = free.cpus(Wish())
    zones = None if given.zones is None else [(one.numa_node, one.amounts.cpu_milli) for one in given.zones]
    text, error = _allocated(free, given.wish, given.cpus_wanted, zones)
    return Calculated(
        output={"available_cpus": written(cpus), "cpuset": text, "error": error or None},
        because=[_because(error or "taken", given.cpus_wanted, cpus)],
    )


def _allocated(free: Free, wish: Wish, wanted: int, zones: Sequence[tuple[int, int]] | None) -> tuple[str | None, str]:
    try:
        return written(allocate(free, wish, wanted, zones)), ""
    except TakeError as exc:
        return None, str(exc)


def _because(bound: str, wanted: int, cpus: Cpus) -> Because:
    return Because(of="cpuset", bound=bound, terms={"wanted_count": wanted, "available_count": len(cpus)})


GivenSpec = Annotated[Spec, Form()]
"""The annotation resource-spec."""


class _CoresPod(Given, frozen=True, kw_only=True):
    cpu_request_milli: Amount
    priority: Whole | None = None
    priority_class_label: str | None = None
    qos_label: str | None = None
    resource_spec: GivenSpec | None = None


class _CpuManager(Given, frozen=True, kw_only=True):
    policy: str = ""
    full_pcpus_only: str = ""
    reserved_cpus: str = ""


class _Pinned(Given, frozen=True, kw_only=True):
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class GivenSystemQos(Given, frozen=True, kw_only=True):
    """The annotation system-qos-resource."""

    cpuset: str = ""
    exclusive: Nullable[bool] = True


class _CoresNode(Given, frozen=True, kw_only=True):
    processors: Processors
    allocated: Allocated = []
    cpu_bind_policy_label: Nullable[str] = ""
    default_bind_policy: str = ""
    default_numa_allocate_strategy: str = ""
    kubelet_cpu_manager: _CpuManager = _CpuManager()
    kubelet_pod_cpus: Nullable[list[_Pinned]] = []
    node_reserved_cpus: Nullable[str] = ""
    numa_allocate_strategy_label: Nullable[str] = ""
    system_qos: Nullable[GivenSystemQos] = GivenSystemQos()

    def reserved(self) -> Cpus:
        """Return the CPUs that no pod may get."""
        pinned = [one for one in self.kubelet_pod_cpus if one.managed_by_kubelet and one.uid]
        texts = [self.kubelet_cpu_manager.reserved_cpus, self.node_reserved_cpus, *(one.cpuset for one in pinned)]
        if self.system_qos.exclusive:
            texts.append(self.system_qos.cpuset)
        return NO_CPUS.union(*map(readable, texts))


def calc_cores_schedule(*, pod: _CoresPod, node: _CoresNode, corrected: Corrected = False) -> Calculated:
    """Decide whether a pod binds CPUs of a node, and which."""
    kubelet, reserved = node.kubelet_cpu_manager, node.reserved()
    free = Free(
        topology=Topology(node.processors, corrected=corrected),
        taken=ledger_of(node.allocated, corrected=corrected).taken,
        reserved=reserved,
        shared_min=SHARED_MIN if corrected else 0,
    )
    found = schedule(
        Pod(
            uid="", namespace="", name="", qos_label=pod.qos_label, priority_class_label=pod.priority_class_label,
            priority=pod.priority, kube_qos="Guaranteed",
        ),
        pod.cpu_request_milli,
        pod.resource_spec or Spec(),
        free,
        NodePolicy(
            label=node.cpu_bind_policy_label,
            full_only=kubelet.policy == STATIC and kubelet.full_pcpus_only == "true",
            default=node.default_bind_policy,
            strategy=node.numa_allocate_strategy_label or node.default_numa_allocate_strategy,
            of_kubelet=corrected and kubelet.policy == STATIC,
        ),
    )  # fmt: skip
    text = None if found.cpus is None else written(found.cpus)
    output: dict[str, object] = {
        "stage": found.stage,
        "reason": found.reason or None,
        "binds_cpus": found.binds,
        "cpuset": text,
        "reserved_cpus": written(reserved),
        "resource_spec_after": _spec_after(found, pod.resource_spec),
        "resource_status_after": None if text is None else {"cpuset": text},
    }
    if corrected:
        output |= {"code": found.code if found.reason else None, "wish_kept": found.wish_kept}
    because = _because(found.reason or found.stage, pod.cpu_request_milli // CPU_MILLI, free.cpus(Wish())[0])
    return Calculated(output=output, because=[because])


def _spec_after(found: Scheduled, given: Spec | None) -> dict[str, str] | None:
    if found.stage != "ok" or (given is None and not found.binds):
        return None
    spec: dict[str, str] = msgspec.to_builtins(found.spec)
    return spec


class _LedgerEvent(Given, frozen=True, kw_only=True):
    type: Literal["assume", "unreserve", "pod_seen", "pod_gone"]
    uid: str
    cpuset: str | None = None
    exclusive_policy: Nullable[str] = ""
    bound: bool = False
    phase: str = ""

    def follow(self, ledger: Ledger) -> None:
        """Apply the change."""
        match self.type:
            case "assume":
                ledger.put(self.uid, readable(self.cpuset), self.exclusive_policy)
            case "unreserve":
                ledger.drop(self.uid)
            case "pod_gone":
                ledger.pod_gone(self.uid)
            case "pod_seen":
                ledger.pod_seen(
                    self.uid, bound=self.bound, phase=self.phase, cpuset=self.cpuset, exclusive=self.exclusive_policy
                )


def calc_cores_ledger(
    *,
    processors: Processors,
    events: Sequence[_LedgerEvent] | None,
    max_ref_count: Whole = 1,
    corrected: Corrected = False,
) -> Calculated:
    """Follow which pods hold which CPUs, after each event."""
    topology = Topology(processors, corrected=corrected)
    ledger, after = Ledger(corrected=corrected), []
    for event in events or ():
        event.follow(ledger)
        cpus, _ = available(topology, ledger.taken, NO_CPUS, max_ref=max_ref_count)
        taken = {
            str(cpu): {"ref_count": one.references, "exclusive_policy": "+".join(sorted(filter(None, one.exclusive)))}
            for cpu, one in sorted(ledger.taken.items())
        }
        held = {uid: written(its) for uid, its in ledger.held.items()}
        after.append({"available_cpus": written(cpus), "cpus": taken, "held": held})
    return Calculated(output={"after_each_event": after}, because=[])


class _CoresZonesInput(Given, frozen=True, kw_only=True):
    wish: GivenWish
    processors: Processors
    corrected: Corrected = False
    zones: Zones
    affinity: Annotated[list[Whole], msgspec.Meta(max_length=1_024)]
    request: Annotated[Amounts, Form(strict=True)]
    reserved_cpus: CpuList = NO_CPUS
    allocated: Allocated = []
    binds_cpus: bool = False


def calc_cores_zones(given: _CoresZonesInput) -> Calculated:
    """Divide a request among the zones that a pod is aligned to."""
    free = Free(
        topology=Topology(given.processors, corrected=given.corrected),
        taken=ledger_of(given.allocated, corrected=given.corrected).taken,
        reserved=given.reserved_cpus,
    )
    held: dict[int, Amounts] = {}
    for one in (zone for pod in given.allocated for zone in pod.zones):
        before = held.get(one.numa_node, Amounts())
        held[one.numa_node] = Amounts(
            cpu_milli=before.cpu_milli + one.amounts.cpu_milli, mem_bytes=before.mem_bytes + one.amounts.mem_bytes
        )
    zones = unheld({one.numa_node: one.amounts for one in given.zones}, held)
    request, wish = given.request, given.wish if given.binds_cpus else None
    parts, lacks = divide(request, zones, given.affinity, free, wish)
    reasons, text = list(lacks), ""
    if wish is not None and not reasons:
        cpus = [(zone, its.cpu_milli) for zone, its in parts.items()]
        found, error = _allocated(free, wish, -(-request.cpu_milli // CPU_MILLI), cpus)
        text, reasons = found or "", [error] if error else []
    shown = [{"numa_node": zone} | amounts_out(its) for zone, its in parts.items()]
    return Calculated(
        output={"cpuset": None if reasons else text, "reasons": reasons, "zones": None if reasons else shown},
        because=[_because(", ".join(reasons) or "taken", request.cpu_milli // CPU_MILLI, free.cpus(Wish())[0])],
    )
