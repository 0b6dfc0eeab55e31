"""Computes the resources that mid pods may request: prod-reclaimable ones and a part of the unallocated ones.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/midresource/plugin.go.
``a x b%`` is the double product truncated, with b/100 taken first, as in the reference.
"""

import msgspec

from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Use
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.because import Because, Figured, in_unit
from slacktide.streams.decisions.known_pods import known
from slacktide.streams.decisions.resources.node_load import NodeLoad, node_reserved

STATIC = "static"
_TERMS = ("capacity", "reclaimable", "unused", "base", "system_or_reserved", "prod_request", "unallocated")
_PARTS = ("base", "unallocated_part", "static")


class _Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    capacity: int
    reclaimable: int
    used: int | None
    """Usage of the whole node; None: unknown, so nothing counts as unused."""
    reserved: int
    system: int
    prod_request: int
    unallocated_pct: int
    static_pct: int
    threshold_pct: int


def mid_resource(load: NodeLoad, colocation: Colocation, *, reclaimable: Use, node_use: Use | None) -> Figured:
    """Compute the static share of capacity, or the unused reclaimable plus a share of the unallocated.

    The host usage in ``load`` is that of production applications only. ``reclaimable``: the prod-reclaimable resources.
    ``node_use``: usage of the whole node; None: CPU or memory is unknown.
    """
    reserved, facts = node_reserved(load.facts), load.facts
    pods = known(load.pods)
    prod, owners = pods.prod_request, pods.exclusive
    # The CPU that pods with exclusive CPUs leave idle counts as used.
    used = {metric.uid: metric.use.cpu_milli for metric in load.metrics if metric.uid in owners} if owners else {}
    idle_milli = sum(max(0, owner.kind.cpu_milli - used.get(uid, 0)) for uid, owner in owners.items())
    cpu = _Figures(
        capacity=facts.capacity.cpu_milli or 0,
        reclaimable=reclaimable.cpu_milli,
        used=None if node_use is None else node_use.cpu_milli + idle_milli,
        reserved=reserved.cpu_milli or 0,
        system=load.system.cpu_milli + load.host_use.cpu_milli,
        prod_request=prod.cpu_milli,
        unallocated_pct=colocation.mid_unallocated_pct,
        static_pct=colocation.mid_static_cpu_reserved_pct,
        threshold_pct=colocation.mid_cpu_threshold_pct,
    )
    mem = _Figures(
        capacity=facts.capacity.mem_bytes or 0,
        reclaimable=reclaimable.mem_bytes,
        used=None if node_use is None else node_use.mem_bytes,
        reserved=reserved.mem_bytes or 0,
        system=load.system.mem_bytes + load.host_use.mem_bytes,
        prod_request=prod.mem_bytes,
        unallocated_pct=colocation.mid_unallocated_pct,
        static_pct=colocation.mid_static_mem_reserved_pct,
        threshold_pct=colocation.mid_mem_threshold_pct,
    )
    static = colocation.mid_reclaim_mode == STATIC
    of_cpu = _figured(cpu, "mid_cpu_milli", "milli", static=static)
    return Figured.by("mid", of_cpu, _figured(mem, "mid_memory_bytes", "bytes", static=static))


def _figured(figures: _Figures, of: str, unit: str, *, static: bool) -> Because:
    terms: Terms
    if static:
        value = int(figures.capacity * (figures.static_pct / 100))
        terms = {f"capacity_{unit}": figures.capacity, "static_pct": figures.static_pct, f"static_{unit}": value}
    else:
        unused = 0 if figures.used is None else figures.capacity - figures.used
        base = max(0, min(figures.reclaimable, unused))
        kept = max(figures.reserved, figures.system)
        unallocated = max(0, figures.capacity - kept - figures.prod_request)
        part = int(unallocated * (figures.unallocated_pct / 100))
        *names, of_part = in_unit(unit, *_TERMS, "unallocated_part")
        amounts = (figures.capacity, figures.reclaimable, unused, base, kept, figures.prod_request, unallocated)
        terms = dict(zip(names, amounts, strict=True))
        terms |= {"unallocated_pct": figures.unallocated_pct, of_part: part}
        value = base + part
    cap = int(figures.capacity * (figures.threshold_pct / 100))
    capped, offered = in_unit(unit, "cap", "mid")
    terms[capped], terms[offered] = cap, min(value, cap)
    return mid_because(of, unit, terms)


def mid_because(of: str, unit: str, terms: Terms) -> Because:
    """Build the reason from computed or recorded terms."""
    *parts, offered = in_unit(unit, *_PARTS, "mid")
    parts = [part for part in parts if part in terms]
    bound = "capped" if terms[offered] < sum([terms[part] for part in parts]) else "formula"
    return Because(of=of, bound=bound, terms=terms, adds=tuple([f"+{part}" for part in parts]))
