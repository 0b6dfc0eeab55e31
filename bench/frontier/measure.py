"""Figure: what each control costs the service, and what batch work gets done: the frontier of utilization.

Blocks are interleaved: in each one every condition has one phase with equal arrivals, in an order of its own. Phases
are kept as they end, so a run that ends early goes on with what is missing.
"""

import random
import statistics
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from bench.frontier import batch
from bench.frontier.conditions import AGAIN, ALONE, AWAKE, CONDITIONS, Condition
from bench.frontier.machine import Machine, Served
from bench.frontier.records import OTHERS_MAX, Phase, append, detectable, quantile_ms, ratio, read
from bench.frontier.services import SERVICES, Service
from bench.rig import CannotRunError, Rig
from bench.rows import Row, told
from slacktide.deploy.demo.groups import NoGroupsError

WHOLE = ("nginx", "threads")
"""Services that are measured with two kinds of batch work, under all conditions."""
KINDS = ("encode", "stream")
FEW = (ALONE, AWAKE, "weights", "weights, idle", "quota 95%, idle", "quota 65%", "pressure", "pressure, idle")
SHIPPED = (ALONE, AWAKE, "quota 95%, idle", "pressure, idle")
"""What `frontier-shipped` measures: the policy that was shipped before, and the one that is shipped."""
OTHER_KINDS = {"redis": "compile", "demo": "spin"}
BLOCKS, PHASE_S, BRIEF_S = 5, 20.0, 3.0
TRIES = 2
"""Of a phase beside which other work ran."""


def pairs() -> Iterator[tuple[Service, str, Sequence[Condition]]]:
    """What is measured: service, kind of batch work, conditions; each service once before any has its second kind."""
    few = [condition for condition in CONDITIONS if condition.name in FEW]
    for service in SERVICES:
        if service.name in WHOLE:
            yield service, KINDS[0], CONDITIONS
        else:
            yield service, OTHER_KINDS[service.name], few
    yield from ((service, KINDS[1], CONDITIONS) for service in SERVICES if service.name in WHOLE)


def measure(rig: Rig) -> list[Row]:
    """As much of all conditions as fits into the rig's minutes. Raises CannotRunError as `shipped`."""
    return _measure(rig, [condition.name for condition in CONDITIONS if not condition.learned])


def shipped(rig: Rig) -> list[Row]:
    """As much of these conditions, for all pairs.

    Raises:
        CannotRunError: this machine lacks a program, or its control groups cannot be had.

    """
    return _measure(rig, SHIPPED)


def _measure(rig: Rig, names: Collection[str]) -> list[Row]:
    if lacking := sorted({lack for service, kind, _ in pairs() if (lack := service.lacks() or batch.lacks(kind))}):
        raise CannotRunError(f"lacks {', '.join(lacking)}: apt-get install nginx-light redis-server ffmpeg gcc")
    file = rig.records if rig.records is not None else rig.folder / "frontier.jsonl"
    until_s = time.monotonic() + rig.minutes * 60
    try:
        with Machine(rig) as machine:
            for block, service, kind, missing in _missing(read(file), names, 1 if rig.brief else BLOCKS):
                if time.monotonic() < until_s:
                    with closing(Served(machine, rig, service)) as served:
                        seconds = BRIEF_S if rig.brief else PHASE_S
                        for condition in missing:
                            if time.monotonic() < until_s:
                                append(file, quietly(rig, served, block, condition, kind, seconds))
    except NoGroupsError as error:
        raise CannotRunError(str(error)) from error
    return rows([phase for phase in read(file) if phase.quiet])


def _missing(
    phases: Sequence[Phase], names: Collection[str], blocks: int
) -> Iterator[tuple[int, Service, str, list[Condition]]]:
    """Pair by pair: what a short run gets done can be read, and a pair is measured on one machine."""
    have = {phase.key for phase in phases if phase.quiet}
    for service, kind, conditions in pairs():
        for block in range(1, blocks + 1):
            keys = {one: (service.name, kind, block, one.name) for one in conditions if one.name in names}
            if missing := [one for one, key in keys.items() if key not in have]:
                yield block, service, kind, random.Random(block).sample(missing, len(missing))


def quietly(rig: Rig, served: Served, block: int, condition: Condition, kind: str, seconds: float) -> Phase:
    """A phase; another one if too much else ran beside it."""
    for _ in range(TRIES):
        phase = served.phase(block, condition, kind, seconds)
        rig.say(
            f"frontier: block {block}, {phase.service} beside {kind}, {condition.name}: p99 "
            f"{quantile_ms([phase], 0.99):.1f} ms, {phase.busy_part:.0%} busy, {phase.work_per_s:g} work a second, "
            f"others {phase.others_part:.0%}"
        )
        if phase.quiet:
            break
    return phase


def rows(phases: Sequence[Phase]) -> list[Row]:
    """One a pair and condition."""
    made = []
    for service, kind in sorted({(phase.service, phase.batch) for phase in phases}):
        pair = [phase for phase in phases if (phase.service, phase.batch) == (service, kind)]
        for condition in CONDITIONS:
            own = [phase for phase in pair if phase.condition == condition.name]
            if own:
                made.append(
                    told(f"{service} beside {kind}: {condition.name}", _text(pair, own), n=f"{len(own)} blocks")
                )
    return made


def _text(pair: Sequence[Phase], own: Sequence[Phase]) -> str:
    name = own[0].condition
    here = {phase.condition for phase in pair}
    p50, p99, p999 = (quantile_ms(own, part) for part in (0.5, 0.99, 0.999))
    parts = [f"p50 {p50:.1f}, p99 {p99:.1f}, p99.9 {p999:.1f} ms"]
    for other in (ALONE, AWAKE):
        if other in here and name != other and len(own) > 1:
            low, middle, high = ratio(pair, name, other)
            parts.append(f"p99 {middle:.2f} [{low:.2f}-{high:.2f}] x {other}")
    if name == AGAIN and len(own) > 1:
        parts.append(f"differences in p99 below {detectable(pair, AGAIN, ALONE):.0%} cannot be told apart")
    busy = statistics.mean(phase.busy_part for phase in own)
    work = statistics.mean(phase.work_per_s for phase in own)
    parts.append(f"{busy:.0%} busy, {work:g} work a second")
    parts.append(f"others {max(phase.others_part for phase in own):.0%} at most (limit {OTHERS_MAX:.0%})")
    return "; ".join(parts)
