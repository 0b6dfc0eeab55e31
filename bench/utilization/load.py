"""A generated day of a fleet, with the shape that published traces have. Pure: equal seed, equal day.

- Services: use of CPU follows the day, and differs from node to node; memory stays (Jiang et al., "Characterizing
  Co-located Workloads in Alibaba Cloud Datacenters", IEEE TCC 2022, on cluster-trace-v2018). They use 20% to 40% of
  the machines, as Cheng et al. (arXiv 1808.02919) quote of Google.
- Batch work: a backlog of tasks whose durations have a heavy tail (Tirmazi et al., "Borg: the Next Generation",
  EuroSys 2020, on the trace of May 2019).

An hour is represented by its first minutes: LEAD_STEPS samples half a minute apart, so that the averages fill by which
batch resources are sold, and then COUNTED_S seconds one by one, with spikes.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

HOURS, LEAD_STEPS, LEAD_S, COUNTED_S = 24, 11, 30, 10
BUSIEST_HOUR = 15
BASE, BASE_SPREAD, DAY_PART = 0.30, 0.05, 0.33
"""Part of a node's CPU that its services use on average; its spread over nodes; how far the day moves it."""
SPIKE_EACH_S, SPIKE_S, SPIKE_PART = 60, (2, 5), (0.10, 0.30)
WOBBLE = 0.08
PART_MAX = 0.90
TASK_MILLI, TASK_USES = (500, 1_000, 2_000, 4_000), (0.70, 1.00)
"""What a task requests, and the part of it that it uses."""
TASK_H_MIN, TASK_H_MAX, TAIL = 0.1, 24.0, 0.7
"""Durations: Pareto, cut at a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One pod of batch work."""

    number: int
    request_milli: int
    mem_bytes: int
    use_milli: int
    hours: float


def service_parts(seed: int, node: int, hour: int) -> list[float]:
    """What a node's services would use, as parts of its CPU: in each step of the lead, then in each second."""
    of_node = random.Random(f"{seed}/{node}")
    base, shift_h = of_node.gauss(BASE, BASE_SPREAD), of_node.gauss(0, 1)
    day = base * (1 + DAY_PART * math.cos(2 * math.pi * (hour - BUSIEST_HOUR - shift_h) / HOURS))
    dice = random.Random(f"{seed}/{node}/{hour}")
    lead = [_bounded(day * dice.gauss(1, WOBBLE / 2)) for _ in range(LEAD_STEPS)]
    seconds, spike_s, spike_part = [], 0, 0.0
    for _ in range(COUNTED_S):
        if spike_s == 0 and dice.random() < 1 / SPIKE_EACH_S:
            spike_s, spike_part = dice.randint(*SPIKE_S), dice.uniform(*SPIKE_PART)
        seconds.append(_bounded(day * dice.gauss(1, WOBBLE) + spike_part * (spike_s > 0)))
        spike_s = max(0, spike_s - 1)
    return [*lead, *seconds]


def backlog(seed: int) -> Iterator[Task]:
    """Tasks without end."""
    dice = random.Random(f"{seed}/backlog")
    number = 0
    while True:
        number += 1
        request = dice.choice(TASK_MILLI)
        yield Task(
            number=number,
            request_milli=request,
            mem_bytes=int(request / 1_000 * dice.uniform(0.5, 1.5) * (1 << 30)),
            use_milli=round(request * dice.uniform(*TASK_USES)),
            hours=min(TASK_H_MAX, TASK_H_MIN * dice.paretovariate(TAIL)),
        )


def _bounded(part: float) -> float:
    return min(PART_MAX, max(0.02, part))
