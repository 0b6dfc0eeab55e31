"""Figure: what a cap leaves that was learned of a service's latency in other blocks, on real control groups.

The product's learner folds the phases of earlier runs as if each were five minutes of a node. A product would wait for
eight hours of them. Then new blocks are measured: alone, under the shipped policy, and with the cap besides.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bench.frontier import batch
from bench.frontier.conditions import AGAIN, ALONE, CONDITIONS, LEARNED, Condition
from bench.frontier.machine import Machine, Served
from bench.frontier.measure import quietly
from bench.frontier.records import Phase, append, quantile_ms, ratio, read
from bench.frontier.services import SERVICES
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, told
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy.effective import learned_cap_pct
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.service import LatencyFit, ServiceSli
from slacktide.streams.learning.latency import LatencyFold
from slacktide.streams.learning.shape import line_slope
from slacktide.streams.learning.sums import Point

PAIRS = (("redis", "compile"), ("nginx", "stream"), ("threads", "encode"))
SHIPPED = "pressure, idle"
LEARNED_OF = (ALONE, AGAIN, "weights, idle", "quota 95%, idle", SHIPPED, LEARNED)
"""Conditions that differ in the share of best-effort CPU, and not in how the kernel ranks it."""
FIRST_BLOCK, BLOCKS = 24, 8
"""Blocks of which nothing was recorded before."""
PHASE_S, MINUTE_MS = 20.0, 300_000
RATIO, RATIO_HIGH = 1.25, 1.5
PHASES = Path(__file__).with_name("phases")


def fit_of(phases: Sequence[Phase], cpus: int) -> LatencyFit:
    """What the learner makes of a pair's phases.

    Raises:
        CannotRunError: there are none.

    """
    fold = LatencyFold()
    for number, phase in enumerate(phases, 1):
        at_ms, p99_us = number * MINUTE_MS, round(1_000 * quantile_ms([phase], 0.99))
        fold.take(ServiceSli(service="a/b", node="machine", observed_ms=at_ms, span_ms=MINUTE_MS, p99_us=p99_us))
        x, z = phase.batch_cpus / cpus, phase.service_cpus / cpus
        fold.measured("machine", at_ms, MINUTE_MS, Point(x=x, y=0.0, z=z, minutes=5.0, template=""))
    fit = fold.fit(len(phases) * MINUTE_MS)
    if fit is None:
        raise CannotRunError(f"no phases of {', '.join(LEARNED_OF)} in {PHASES}")
    return fit


def measure(rig: Rig) -> list[Row]:
    """Each pair: learn of all recorded phases, then measure new blocks, as many as fit into the rig's minutes."""
    recorded = [phase for file in sorted(PHASES.glob("*.jsonl.gz")) for phase in read(file) if phase.quiet]
    file = rig.records if rig.records is not None else rig.folder / "frontier-learned.jsonl"
    until_s = time.monotonic() + rig.minutes * 60
    conditions = [one for one in CONDITIONS if one.name in {ALONE, SHIPPED, LEARNED}]
    rows = []
    with Machine(rig) as machine:
        for name, kind in PAIRS:
            service = next(one for one in SERVICES if one.name == name)
            if lack := service.lacks() or batch.lacks(kind):
                raise CannotRunError(f"lacks {lack}: apt-get install nginx-light redis-server ffmpeg gcc")
            own = [one for one in recorded if (one.service, one.batch) == (name, kind)]
            fit = fit_of([one for one in own if one.condition in LEARNED_OF], machine.cpus)
            machine.learned(_slope_permille(fit))
            rows.append(_fit_row(f"{name} beside {kind}", fit))
            for block in range(FIRST_BLOCK, FIRST_BLOCK + (1 if rig.brief else BLOCKS)):
                if time.monotonic() < until_s:
                    with closing(Served(machine, rig, service)) as served:
                        _block(rig, served, block, conditions, kind, file)
            phases = [one for one in read(file) if (one.service, one.batch) == (name, kind) and one.quiet]
            rows += _rows(f"{name} beside {kind}", phases)
    return rows


def _block(rig: Rig, served: Served, block: int, conditions: Sequence[Condition], kind: str, file: Path) -> None:
    have = {phase.key for phase in read(file) if phase.quiet}
    for condition in conditions[block % len(conditions) :] + conditions[: block % len(conditions)]:
        if (served.service.name, kind, block, condition.name) not in have:
            append(file, quietly(rig, served, block, condition, kind, 3.0 if rig.brief else PHASE_S))


def _slope_permille(fit: LatencyFit) -> int:
    """What nodes would get."""
    return max(0, round(1_000 * line_slope(fit.shape, fit.slope_permille / 1_000)))


def _fit_row(pair: str, fit: LatencyFit) -> Row:
    whole = Resources(cpu_milli=1_000)
    facts = NodeFacts(name="n", capacity=whole, allocatable=whole, slope_permille=_slope_permille(fit))
    cap_pct = learned_cap_pct(Colocation(), facts)
    cap = "no cap" if cap_pct is None else f"cap {cap_pct}% of the CPUs"
    slope, low, high = (each / 1_000 for each in (fit.slope_permille, fit.low_permille, fit.high_permille))
    text = (
        f"{fit.shape} slope {slope:.2f} [{low:.2f} to {high:.2f}], p99 alone {fit.alone_us / 1_000:.1f} ms: {cap}; the "
        f"learner says {fit.status}"
    )
    return told(f"{pair}: learned of other blocks", text)


def _rows(pair: str, phases: Sequence[Phase]) -> list[Row]:
    rows = []
    for name in (ALONE, SHIPPED, LEARNED):
        own = [phase for phase in phases if phase.condition == name]
        if not own:
            continue
        busy = statistics.mean(phase.busy_part for phase in own)
        batch_part = statistics.mean(phase.batch_cpus for phase in own)
        text = f"p99 {quantile_ms(own, 0.99):.1f} ms, {busy:.0%} busy, {batch_part:.2f} CPUs by batch work"
        figure, n = f"{pair}: {name}", f"{len(own)} blocks"
        if name == ALONE or len(own) < 2:
            rows.append(told(figure, text, n=n))
            continue
        low, middle, high = ratio(phases, name, ALONE)
        text = f"p99 {middle:.2f} [{low:.2f} to {high:.2f}] x alone; {text}"
        if name == SHIPPED:
            rows.append(told(figure, text, n=n))
        else:
            target = f"p99 <= {RATIO} x alone, upper end <= {RATIO_HIGH}"
            rows.append(judged(figure, target, text, met=middle <= RATIO and high <= RATIO_HIGH, n=n))
    return rows
