"""Figures: what samples ahead of their tick win and cost: the same loads with and without, by turns, on a real node."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from bench import log, loop
from bench.node import NAME, Node, node
from bench.plan import Plan, spikes, stairs, steady
from bench.process import Slacktide
from bench.reaction import MOST, Played, first_cuts_s, longest, median, play, within
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, seconds, told
from slacktide.agents.clock import SystemClock

TURNS = 5
"""Of each way, and in each so many spikes and stairs of three steps."""
SPIKES, STAIRS = 10, 4
N_MIN = 50
MEDIAN_S, MOST_S = 0.2, 0.4
FETCH_WAIT_MS = 50
"""As ``slacktide up`` has it with the embedded broker."""
WARM_UP_S, SETTLE_S, COST_S = 3.0, 4.0, 20.0
WAYS = {
    "ahead of ticks": (),
    "ticks alone": ("--look-interval", "0", "--pressure-trigger", "off"),
}
"""Arguments of the agent; the first is how it comes."""
DEFAULT = next(iter(WAYS))
PLANS: dict[str, Callable[[int], Plan]] = {
    "spikes": lambda seed: spikes(seed, SPIKES),
    "stairs": lambda seed: stairs(seed, STAIRS),
}
LOADS = {
    "idle": steady(0.0, SETTLE_S + COST_S),
    "steady load": steady(0.35, SETTLE_S + COST_S),
    "standing pressure": steady(0.9, SETTLE_S + COST_S, processes_per_cpu=3),
}
"""Of which the last keeps all CPUs busy with more processes than there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an agent, and the machine for it, did under one load."""

    core_pct: float
    samples_per_s: float
    kernel_pct: float
    """Of a core: the kernel's own threads that watch for triggers."""


@dataclass(slots=True)
class Found:
    """All of one way."""

    played: dict[str, list[Played]] = field(default_factory=lambda: {name: [] for name in PLANS})
    costs: dict[str, Cost] = field(default_factory=dict)


def measure(rig: Rig) -> list[Row]:
    """By turns, against one broker, worker and node."""
    found = {way: Found() for way in WAYS}
    with (
        rig.embedded() as broker,
        loop.worker(rig, broker.bootstrap) as worker,
        node(rig, crunch=True, alone=True) as one,
    ):
        if one.mode != "real":
            raise CannotRunError("no real processes stall on a virtual node: run as root, with control groups")
        for turn, way in itertools.product(range(TURNS), WAYS):
            rig.say(f"ahead: {way}, turn {turn + 1} of {TURNS}")
            _turn(rig, broker.bootstrap, worker, one, way, turn, found[way])
        outcomes = log.outcomes(broker.bootstrap, NAME)
    rows = []
    for name in PLANS:
        for way in WAYS:
            firsts = [first for played in found[way].played[name] for first in first_cuts_s(played, outcomes)]
            rows.append(_row(name, way, firsts))
    return [*rows, *(_cost_row(load, found) for load in LOADS)]


def _turn(rig: Rig, bootstrap: str, worker: Slacktide, one: Node, way: str, turn: int, found: Found) -> None:
    """Steps with an agent of its own; in the first turn, what it costs as well."""
    with loop.agent(rig, bootstrap, one, "--fetch-wait-ms", str(FETCH_WAIT_MS), *WAYS[way]) as agent:
        wait(WARM_UP_S, worker, agent)
        for name, plan in PLANS.items():
            # Both ways get the same.
            played = play(one, plan(turn))
            found.played[name].append(played)
            wait((played.at_ms(played.plan.seconds) - SystemClock().wall_ms()) / 1000, worker, agent)
        for load, plan in LOADS.items() if turn == 0 else ():
            rig.say(f"ahead: {way}, its cost: {load}")
            found.costs[load] = _cost(one, plan, worker, agent)


def _cost(one: Node, plan: Plan, worker: Slacktide, agent: Slacktide) -> Cost:
    one.play(plan)
    wait(SETTLE_S, worker, agent)
    cpu_s, kernel_s, samples = agent.cpu_s(), _watchers_s(), agent.metric("slacktide_agent_samples_total")
    begin_s = time.monotonic()
    wait(COST_S, worker, agent)
    passed_s = time.monotonic() - begin_s
    return Cost(
        core_pct=100 * (agent.cpu_s() - cpu_s) / passed_s,
        samples_per_s=(agent.metric("slacktide_agent_samples_total") - samples) / passed_s,
        kernel_pct=100 * (_watchers_s() - kernel_s) / passed_s,
    )


def _watchers_s() -> float:
    """CPU time of the kernel's threads that look for triggers."""
    watchers = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "psimon"]
    return sum(sum(one.cpu_times()[:2]) for one in watchers)


def _row(name: str, way: str, firsts: list[float | None]) -> Row:
    figure = f"LS {name}: step -> first lower limit, {way}"
    share = within(firsts, MOST_S)
    middle = median(firsts)
    said = f"median {seconds(middle)}, {share:.0%} within {MOST_S:g} s, longest {seconds(longest(firsts))}"
    if way != DEFAULT:
        return told(figure, said, n=len(firsts), all_s=firsts)
    return judged(
        figure,
        f"median <= {MEDIAN_S:g} s, {MOST:.0%} <= {MOST_S:g} s, n >= {N_MIN}",
        said,
        met=share >= MOST and middle is not None and middle <= MEDIAN_S and len(firsts) >= N_MIN,
        n=len(firsts),
        all_s=firsts,
    )


def _cost_row(load: str, found: dict[str, Found]) -> Row:
    costs = {way: found[way].costs[load] for way in WAYS}
    said = [
        f"{way} {cost.core_pct:.2f}% of a core at {cost.samples_per_s:.2f} samples/s, the kernel {cost.kernel_pct:.2f}%"
        for way, cost in costs.items()
    ]
    values = {f"{way}_core_pct": cost.core_pct for way, cost in costs.items()}
    return told(f"agent, {load}: CPU time", "; ".join(said), n=f"{COST_S:g} s", **values)
