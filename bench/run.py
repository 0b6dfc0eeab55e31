"""Runs the parts one after the other, prints the table."""

import argparse
import json
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    admissions,
    advise,
    agents,
    ahead,
    console,
    cost,
    crowd,
    gangs,
    idle,
    idle_groups,
    jobs,
    kueue,
    latency,
    leak,
    memory,
    own_time,
    queue,
    reaction,
    replay,
    slowdown,
    small,
    start,
    takeover,
    thousand,
    throughput,
    uninstalls,
    webhook,
    zones,
)
from bench.frontier import guest as frontier_v2
from bench.frontier import learned as frontier_learned
from bench.frontier import measure as frontier
from bench.koordinator import fleet as koordinator_fleet
from bench.koordinator import measure as koordinator
from bench.peers import measure as peers
from bench.rig import CannotRunError, Rig
from bench.rows import Row, table
from bench.utilization import learned
from bench.utilization import measure as utilization

PARTS: dict[str, Callable[[Rig], list[Row]]] = {
    "latency": latency.measure,
    "reaction": reaction.measure,
    "ahead": ahead.measure,
    "start": start.measure,
    "cost": cost.measure,
    "slowdown": slowdown.measure,
    "idle-groups": idle_groups.measure,
    "throughput": throughput.measure,
    "profile": own_time.measure,
    "peers": peers.measure,
    "memory": memory.measure,
    "idle": idle.measure,
    "small": small.measure,
    "webhook": webhook.measure,
    "zones": zones.measure,
    "gangs": gangs.measure,
    "queue": queue.measure,
    "admissions": admissions.measure,
    "kueue": kueue.measure,
    "koordinator": koordinator.measure,
    "koordinator-fleet": koordinator_fleet.measure,
    "uninstalls": uninstalls.measure,
    "replay": replay.measure,
    "jobs": jobs.measure,
    "advise": advise.measure,
    "takeover": takeover.measure,
    "console": console.measure,
    "crowd": crowd.measure,
    "fleet": utilization.measure,
    "fleet-learned": learned.measure,
    "agents": agents.measure,
    "cluster": thousand.measure,
    "frontier": frontier.measure,
    "frontier-shipped": frontier.shipped,
    "frontier-learned": frontier_learned.measure,
    "frontier-v2": frontier_v2.measure,
    "leak": leak.measure,
}
ASKED_FOR = (
    *("advise", "crowd", "fleet", "fleet-learned", "agents", "cluster", "kueue", "koordinator", "koordinator-fleet"),
    *("frontier", "frontier-shipped", "frontier-learned", "frontier-v2", "leak"),
)
"""Parts that take longer than all others."""


def main() -> int:
    """Exit code: 0, also where a target is missed; 1 where a part could not run."""
    asked = _asked()
    # As Ctrl-C: whatever ends the run, what it started ends before it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows: list[Row] = []
    failed: dict[str, str] = {}
    seen: dict[str, Any] = {}
    try:
        with Rig(
            virtual=asked.virtual,
            brief=asked.brief,
            minutes=asked.minutes,
            nodes=asked.nodes,
            each_s=asked.each,
            records=asked.records,
            against=asked.against,
        ) as rig:
            for name in asked.only or (name for name in PARTS if name not in ASKED_FOR):
                seen[name] = rig.conditions()
                rig.say(f"--- {name}: {_told(seen[name])}")
                _part(rig, name, rows, failed)
    except KeyboardInterrupt:
        failed["bench"] = "interrupted"
    if asked.json:
        asked.json.write_text(json.dumps(_report(rows, failed, seen), indent=2) + "\n")
    sys.stdout.write(_summary(rows, failed, seen))
    return 1 if failed else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=f"Measure what the project promises. Only where it is named: {', '.join(ASKED_FOR)}.",
        epilog='make bench ARGS="--only cost"',
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers as JSON, too")
    parser.add_argument("--virtual", action="store_true", help="virtual nodes, also where real ones can be had")
    parser.add_argument("--brief", action="store_true", help="peers and fleets small: shows only that they work")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long `crowd` or a frontier runs (10)")
    parser.add_argument("--nodes", type=int, default=0, help="of `cluster`, `fleet` (1000), agents of `agents` (2000)")
    parser.add_argument("--each", type=float, default=1.0, metavar="SECONDS", help="how often its nodes report (1)")
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FILE",
        help="phases: `frontier` goes on with them, `fleet` fits a model to them",
    )
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="a checkout that `idle` and `small` run, too")
    return parser.parse_args()


def _part(rig: Rig, name: str, rows: list[Row], failed: dict[str, str]) -> None:
    try:
        rows += PARTS[name](rig)
    except CannotRunError as error:
        failed[name] = str(error)
    except Exception as error:  # noqa: BLE001 - the other parts can still be measured
        failed[name] = f"{error!r}\n{traceback.format_exc()}"
    if name in failed:
        rig.say(f"{name} could not run: {failed[name]}")


def _told(conditions: dict[str, Any]) -> str:
    return (
        f"{conditions['cpus']} CPUs, load {conditions['load_1m']}, before it {conditions['busy_pct']}% busy, "
        f"{conditions['steal_pct']}% stolen"
    )


def _report(rows: list[Row], failed: dict[str, str], seen: dict[str, Any]) -> dict[str, Any]:
    figures = [
        {"figure": row.figure, "target": row.target, "measured": row.measured, "n": row.n, "verdict": row.verdict}
        | {"values": row.values}
        for row in rows
    ]
    machine = {"kernel": platform.release(), "python": platform.python_version(), "before_each_part": seen}
    return {"machine": machine, "figures": figures, "could_not_run": failed}


def _summary(rows: list[Row], failed: dict[str, str], seen: dict[str, Any]) -> str:
    lines = [table(rows) if rows else "nothing was measured", ""]
    over = sum(row.verdict == "over" for row in rows)
    judged = sum(row.verdict != "info" for row in rows)
    lines.append(
        f"{judged - over} of {judged} targets met; Linux {platform.release()}, Python {sys.version.split()[0]}"
    )
    lines += [f"{name}: {_told(conditions)}" for name, conditions in seen.items()]
    lines += [f"COULD NOT RUN {name}: {why.splitlines()[0] if why else ''}" for name, why in failed.items()]
    return "\n".join(lines) + "\n"
