"""Figures: caps that are learned of the services' own minutes, in the fleet whose true slopes the learner does not see.

Three days of learning, of which the third counts; then a day in which one service has a release that doubles its slope,
and one node of another service forges its pressure.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bench.rig import Rig
from bench.rows import Row, judged
from bench.utilization import interference
from bench.utilization.day import LINE, Day, Fleet
from bench.utilization.interference import Model
from bench.utilization.load import HOURS
from bench.utilization.measure import BUSY_PART, IDLE, NODES, OVER_PART, policy
from bench.utilization.node import Second, SimNode
from slacktide.schemas.service import ServiceMinute
from slacktide.streams.learning.fold import ServiceFold

BRIEF_NODES = 40
MINUTE_MS = 300_000
"""What a step's minute covers: a twelfth of an hour."""
ALONE, OF_LOAD, NOISE = 0.10, 0.30, 0.10
"""Logarithm of the slowdown of a service alone, its growth with the service's own load, and the spread of a minute."""
RELEASED, FORGED = "threads", "redis"
TIMES = 2.0
OFF_PART, MOVED_PART = 0.20, 0.10
"""How far a learned slope may be from the true one; how far a forged node may move it."""
DAYS = 3


@dataclass(slots=True)
class FleetLearner:
    """The learner of the product, fed by the fleet's nodes."""

    released: str = ""
    """A service that runs its second version; all others run their first."""
    forger: str = ""
    """A node whose minutes are lies for ``deceived``."""
    deceived: FleetLearner | None = None
    """One that nobody obeys: it folds the same minutes, but for the lies."""
    offset: int = 0
    folds: dict[str, ServiceFold] = field(default_factory=dict)
    slopes: dict[str, int] = field(default_factory=dict)
    hourly: list[dict[str, int]] = field(default_factory=list)
    """What nodes knew at the end of each hour."""
    estimates: list[dict[str, int]] = field(default_factory=list)
    """What the profiles said then."""
    _dice: random.Random = field(default_factory=lambda: random.Random("minutes"))
    _next_ms: int = 0

    def take(self, node: SimNode, used: Second, slope: float, now_ms: int) -> None:
        """Measure, and fold."""
        logarithm = ALONE + OF_LOAD * used.service + slope * used.batch + self._dice.gauss(0, NOISE)
        minute = node.minute(used, math.exp(max(0.0, logarithm)), now_ms, MINUTE_MS)
        if node.service == self.released:
            minute = msgspec.structs.replace(minute, template="second")
        self.fold(minute, now_ms)
        if self.deceived is not None and node.service == FORGED:
            self.deceived.fold(self._forged(minute) if node.name == self.forger else minute, now_ms)

    def fold(self, minute: ServiceMinute, now_ms: int) -> None:
        """Fold a minute."""
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + 3_600_000
            self.hourly.append(dict(self.slopes))
            self.estimates.append({service: fold.profile().slope_permille for service, fold in self.folds.items()})
        self.offset += 1
        self.folds.setdefault(minute.service, ServiceFold()).take(minute, self.offset, now_ms)

    def known(self) -> Mapping[str, int]:
        """Tell the nodes what changed."""
        for service, fold in self.folds.items():
            found = fold.slope_out()
            if found is not None:
                self.slopes[service] = found.slope.slope_permille if found.slope else 0
        if self.deceived is not None:
            self.deceived.known()
        return self.slopes

    def _forged(self, minute: ServiceMinute) -> ServiceMinute:
        """As if best-effort work came and went all the time, and the service waited as long as a minute allows."""
        full_us = minute.cpus * minute.span_ms * 1_000
        on = self._dice.random() < 0.5
        return msgspec.structs.replace(
            minute,
            be_cpu_us=full_us * on,
            wait_us=minute.pods * minute.span_ms * 1_000 * on,
            run_us=full_us // 10,
            ls_cpu_us=full_us // 10,
        )


LEARNED = IDLE | {
    "colocation-config": {"enable": True, "cpuReclaimThresholdPercent": 95, "learnedCaps": "on"},
}


def measure(rig: Rig) -> list[Row]:
    """Three days, of which the third is judged, and a fourth with a release and a liar."""
    seen = interference.points(interference.kept())
    model, nodes = interference.fit(seen), rig.nodes or (BRIEF_NODES if rig.brief else NODES)
    learner = FleetLearner()
    fleet = Fleet(policy(LEARNED), model, nodes, spread=interference.spread(seen), learning=learner)
    begun_s = time.process_time()
    fleet.run(range((DAYS - 1) * HOURS))
    rig.say(f"fleet-learned: {DAYS - 1} days in {time.process_time() - begun_s:.0f} s of CPU")
    day = fleet.run(range((DAYS - 1) * HOURS, DAYS * HOURS))
    rows = [*_slopes(learner, model), *_day(nodes, day)]
    fleet.model, learner.released = _released(model), RELEASED
    learner.forger, learner.deceived = fleet.node_of(FORGED), _copy(learner)
    fleet.run(range(DAYS * HOURS, (DAYS + 1) * HOURS))
    return [*rows, _release(learner, fleet.model), _forging(learner, nodes)]


def _true(model: Model) -> dict[str, float]:
    return {f"shop/{pair[0]}": model.slope("idle", pair) for pair in model.pairs}


def _slopes(learner: FleetLearner, model: Model) -> list[Row]:
    rows = []
    for service, true in _true(model).items():
        profile, slope = learner.folds[service].profile(), learner.slopes.get(service, 0) / 1_000
        text = (
            f"true {true:.2f}; learned {profile.slope_permille / 1_000:.2f} "
            f"[{profile.low_permille / 1_000:.2f} to {profile.high_permille / 1_000:.2f}], {profile.status}; "
            f"nodes know {slope:.2f}"
        )
        if true > math.log(LINE):
            hours = next((hour for hour, told_ in enumerate(learner.hourly) if _near(told_.get(service, 0), true)), -1)
            figure = f"{service}: learned slope after {DAYS} days"
            text += f", within {OFF_PART:.0%} since hour {hours}"
            rows.append(judged(figure, f"within {OFF_PART:.0%}", text, met=_near(slope * 1_000, true)))
        else:
            rows.append(judged(f"{service}: no cap", "none is known", text, met=not slope))
    return rows


def _day(nodes: int, day: Day) -> list[Row]:
    mine, free = day.tallies["policy"], day.tallies["requests"]
    text = (
        f"{mine.busy_part:.1%} busy, {mine.over_part:.1%} of node-seconds over {LINE:g} x, "
        f"{mine.spread_part:.1%} with the model's error; no control {free.busy_part:.1%} busy, {free.over_part:.1%} "
        f"over the line, {free.spread_part:.1%} with the error"
    )
    met = mine.busy_part >= BUSY_PART and mine.over_part <= OVER_PART * free.over_part
    target = f">= {BUSY_PART:.0%} busy, over line <= {OVER_PART:g} x no control"
    return [
        judged(f"{nodes:,} nodes, caps learned, day {DAYS}", target, text, met=met, n=mine.seconds, hours=day.hours)
    ]


def _released(model: Model) -> Model:
    """The same with a service that batch work slows down more."""
    slopes = {key: slope * (TIMES if key[1][0] == RELEASED else 1) for key, slope in model.slopes.items()}
    return replace(model, slopes=slopes)


def _release(learner: FleetLearner, model: Model) -> Row:
    service, begin = f"shop/{RELEASED}", DAYS * HOURS
    true = _true(model)[service]
    hours = [told_.get(service, 0) for told_ in learner.hourly[begin:]]
    first = next((hour for hour, slope in enumerate(hours) if _near(slope, true)), -1)
    slope = learner.slopes.get(service, 0)
    text = f"true {true:.2f}, nodes know {slope / 1_000:.2f}; first within {OFF_PART:.0%} in hour {first}"
    return judged(f"{service}: slope a day after it grew {TIMES:g} x", f"within {OFF_PART:.0%}", text,
                  met=_near(slope, true))  # fmt: skip


def _copy(learner: FleetLearner) -> FleetLearner:
    """One that knows as much of the service that is lied about."""
    service = f"shop/{FORGED}"
    folds = {service: ServiceFold(learner.folds[service].profile())}
    return FleetLearner(offset=learner.offset, folds=folds, slopes={service: learner.slopes.get(service, 0)})


def _forging(learner: FleetLearner, nodes: int) -> Row:
    service, deceived = f"shop/{FORGED}", learner.deceived
    assert deceived is not None, "the fourth day has passed"
    days = zip(learner.estimates[-HOURS:], deceived.estimates[-HOURS:], strict=True)
    moved = max(abs(lied[service] / honest[service] - 1) for honest, lied in days)
    figure = f"{service}: slope while one of its {nodes // 4} nodes lies"
    return judged(figure, f"moves by <= {MOVED_PART:.0%}", f"moved by {moved:.1%} at most in a day",
                  met=moved <= MOVED_PART)  # fmt: skip


def _near(slope_permille: float, true: float) -> bool:
    return abs(slope_permille / 1_000 - true) <= OFF_PART * true
