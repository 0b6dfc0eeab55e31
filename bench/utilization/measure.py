"""Figure: how busy a fleet gets with batch work over a day, and how long its services are over their line."""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

from bench.frontier.records import read
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, told
from bench.utilization import interference
from bench.utilization.day import LINE, WAYS, Day, Fleet
from bench.utilization.interference import Model, Point
from bench.utilization.load import HOURS
from bench.utilization.node import SERVICE_LABEL
from slacktide.deploy.demo.figures import percentile
from slacktide.schemas.policy import Policy, parse

NODES, BRIEF_NODES, BRIEF_HOURS = 1_000, 40, (3, 15)
BUSY_PART, OVER_PART = 0.65, 0.10
"""The least that the fleet is busy; the most of the uncontrolled fleet's time over the line."""
COMPARED = ("no control", "weights", "weights, idle", "quota 65%", "quota 95%")
"""Runs of the newest block on the machine, foretold by a model of the other blocks."""
IDLE: dict[str, Any] = {
    "colocation-config": {"enable": True, "cpuReclaimThresholdPercent": 90},
    "resource-threshold-config": {
        "clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 95}
    },
    "resource-qos-config": {
        "clusterStrategy": {
            "policies": {"cpuPolicy": "podIdle"},
            "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
        }
    },
}


def policies(model: Model) -> dict[str, Policy]:
    """By name, as the operator's ConfigMap has them. The last one is judged."""
    usual = {
        "colocation-config": {"enable": True},
        "resource-threshold-config": {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}},
    }
    sold = {"enable": True, "cpuReclaimThresholdPercent": 95, "nodeConfigs": caps(model)}
    return {
        "Koordinator's defaults": policy(usual),
        "idle pods, 90% sold": policy(IDLE),
        "idle pods, 95% sold, capped by service": policy(IDLE | {"colocation-config": sold}),
    }


def caps(model: Model) -> list[dict[str, Any]]:
    """Node strategies for services that batch work beyond some part of the CPUs brings over the line."""
    found = []
    for pair in model.pairs:
        slope = model.slope("idle", pair)
        if slope > math.log(LINE):
            labels = {"matchLabels": {SERVICE_LABEL: pair[0]}}
            percent = int(100 * math.log(LINE) / slope)
            found.append({"name": pair[0], "nodeSelector": labels, "batchCPUThresholdPercent": percent})
    return found


def policy(strategies: dict[str, Any]) -> Policy:
    """Read them from a ConfigMap."""
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    data = {key: json.dumps(value) for key, value in strategies.items()}
    return parse({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, "policy").policy


def measure(rig: Rig) -> list[Row]:
    """The model, its error, and a day by each policy.

    Raises:
        CannotRunError: the records do not suffice for a model.

    """
    phases = interference.kept() if rig.records is None else interference.measured(read(rig.records))
    seen = interference.points(phases)
    try:
        model = interference.fit(seen)
    except ValueError as error:
        raise CannotRunError(str(error)) from error
    rows = model_rows(seen, model)
    nodes = rig.nodes or (BRIEF_NODES if rig.brief else NODES)
    hours = BRIEF_HOURS if rig.brief else range(HOURS)
    of = policies(model)
    for name, its in of.items():
        begun_s = time.process_time()
        day = Fleet(its, model, nodes, spread=interference.spread(seen)).run(hours)
        rig.say(f"fleet: {name}: {day.samples:,} samples in {time.process_time() - begun_s:.0f} s of CPU")
        rows += day_rows(name, nodes, day, is_judged=its is list(of.values())[-1])
    return rows


def model_rows(seen: Sequence[Point], model: Model) -> list[Row]:
    """Slopes, the error on runs that were not seen, and all of these runs of one block."""
    foretold = interference.held_out(seen)
    rows = []
    for rank in dict.fromkeys(interference.RANKS.values()):
        own = [(one, without) for one, without in foretold if one.rank == rank]
        each = ", ".join(
            f"{service} beside {batch} {model.slopes[rank, (service, batch)]:.2f}"
            for service, batch in model.pairs
            if (rank, (service, batch)) in model.slopes
        )
        off = f"x {interference.error(own):.2f} on runs that it has not seen" if own else "not known"
        rows.append(told(f"model, {rank}", f"slope {model.pooled[rank]:.2f} ({each}); error {off}", n=len(own)))
    newest = max((one.block for one, _ in foretold), default=0)
    for one, without in foretold:
        if one.block == newest and one.condition in COMPARED:
            ratio = without.ratio(one.rank, one.pair, one.batch_part)
            rows.append(
                told(
                    f"foretold: {' beside '.join(one.pair)}, {one.condition}",
                    f"p99 {ratio:.2f} x alone; measured in block {one.block}: {math.exp(one.log_ratio):.2f} x, with "
                    f"{one.batch_part:.0%} batch work",
                )
            )
    return rows


def day_rows(name: str, nodes: int, day: Day, *, is_judged: bool) -> list[Row]:
    """A row a way."""
    rows, free = [], day.tallies["requests"]
    for way, title in WAYS.items():
        tally = day.tallies[way]
        text = (
            f"{tally.busy_part:.1%} busy ({tally.batch / tally.seconds:.1%} by batch work); "
            f"{tally.over_part:.1%} of node-seconds over {LINE:g} x, {tally.spread_part:.1%} with the model's error; "
            f"p99 {_middle(tally.ratios):.2f} x alone in the "
            f"median, {_high(tally.ratios):.2f} x in 1 of 100"
        )
        figure = f"{nodes:,} nodes, {name}: {title}"
        if way == "policy" and is_judged:
            busy = tally.busy_part >= BUSY_PART
            target = f">= {BUSY_PART:.0%} busy, over line <= {OVER_PART:g} x no control"
            met = busy and tally.over_part <= OVER_PART * free.over_part
            rows.append(judged(figure, target, text, met=met, n=tally.seconds, hours=day.hours))
            met = busy and tally.spread_part <= OVER_PART * free.spread_part
            text = f"{tally.spread_part:.1%} over the line, no control {free.spread_part:.1%}"
            rows.append(judged(f"{figure}, with the model's error", target, text, met=met, n=tally.seconds))
        else:
            rows.append(told(figure, text, n=tally.seconds, hours=day.hours))
    return rows


def _middle(ratios: Sequence[float]) -> float:
    return percentile(ratios, 50) or 0.0


def _high(ratios: Sequence[float]) -> float:
    return percentile(ratios, 99) or 0.0
