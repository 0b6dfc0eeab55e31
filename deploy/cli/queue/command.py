"""``slacktide queue``: run or simulate a job queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from slacktide.deploy.cli.queue import run, topics
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime.settings import bootstrap_option, file
from slacktide.deploy.runtime.text import Duration, count, instant, show, show_json, table
from slacktide.schemas.connection import Cluster
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings
from slacktide.streams.decisions.queue.simulation import Happened, Outcome, Simulation
from slacktide.streams.explain.queued import borrowed


@click.group(cls=Group, epilog="Example: slacktide queue simulate cluster.yaml --with one-more-job.yaml")
def command() -> None:
    """Run or simulate a job queue with quotas, by Kueue's objects and rules."""


for one in (run.command, topics.publish, topics.status, topics.outcome):
    command.add_command(one)


@command.command(
    epilog="""Example: slacktide queue simulate cluster.yaml --with one-more-job.yaml, after kubectl get
    clusterqueues,cohorts,resourceflavors,localqueues,workloads,jobs -A -o yaml > cluster.yaml"""
)
@click.argument("cluster", type=file(), required=False, metavar="[FILE]")
@click.option("--live", is_flag=True, help="Begin with the state in Kafka, instead of a file.")
@bootstrap_option
@click.option(
    "--with",
    "changes",
    type=file(),
    multiple=True,
    metavar="FILE",
    help="File with objects to add or replace. The output also contains the result without them.",
)
@click.option("--for", "for_ms", type=Duration(), help="End after this simulated time. Default: when no event is left.")
@click.option(
    "--fair-sharing", is_flag=True, help="Admit and preempt by fair sharing, like Kueue with fairSharing enabled."
)
@click.option("--corrected", is_flag=True, help="Correct decisions that are known to be wrong in Kueue.")
@click.option("--json", "as_json", is_flag=True, help="Print events and workloads as JSON Lines.")
def simulate(
    cluster: Path | None,
    changes: tuple[Path, ...],
    for_ms: int | None,
    bootstrap: Cluster,
    *,
    live: bool,
    fair_sharing: bool,
    corrected: bool,
    as_json: bool,
) -> None:
    """Simulate the queue of a file or of Kafka: which workloads are admitted when, preempt others, or lack quota.

    Workloads are the initial state. Jobs without a Workload arrive at their creation time. A job runs for its
    annotation slacktide.io/run-seconds, or for its recorded duration. A job without either does not end.
    """
    if live == (cluster is not None):
        raise click.UsageError("give either a FILE or --live")
    files, objects = ([cluster] if cluster is not None else []), topics.live_objects(bootstrap) if live else []
    given = queue_cluster(topics.objects_in([*files, *changes], objects))
    settings = Settings(given.flavors, fair_sharing, corrected=corrected)
    done, happened = _simulated(given, settings, for_ms)
    before: dict[str, Outcome] = {}
    if changes:
        base, _ = _simulated(queue_cluster(topics.objects_in(files, objects)), settings, for_ms)
        before = {one.uid: one for one in base.outcomes()}
    if as_json:
        for line in _lines(given, done, happened, before):
            show_json(msgspec.json.encode(line))
    else:
        show(_text(given, done, happened, before if changes else None))


def _simulated(given: QueueCluster, settings: Settings, for_ms: int | None) -> tuple[Simulation, list[Happened]]:
    settings = settings._replace(flavors=given.flavors)
    state = Scheduling(given.queues, given.holders, settings, given.admitted)
    arrivals = sorted(given.arriving, key=lambda one: (one.at_s, one.workload.uid))
    now_s = given.latest_s or (arrivals[0].at_s if arrivals else 0)
    for one in given.waiting:
        state.push(one, now_s)
    simulation = Simulation(state, given.run_s, now_s, given.drained)
    until_s = None if for_ms is None else now_s + for_ms // 1000
    return simulation, list(simulation.run(arrivals, until_s))


def _text(
    given: QueueCluster, run: Simulation, happened: Sequence[Happened], before: Mapping[str, Outcome] | None
) -> str:
    """Format tables of events and of final states; ``before``: results without the changes."""
    parts = [*given.notes]
    if happened:
        rows = [(_time(one.at_s), one.kind, given.names[one.uid], one.queue, _detail(one, given)) for one in happened]
        parts.append(table(("TIME", "EVENT", "WORKLOAD", "QUEUE", "DETAIL"), rows))
    outcomes = list(run.outcomes())
    head = ["WORKLOAD", "QUEUE", "STATE", "POSITION", "WAIT", "MODE", "REASON", "LACKS"]
    if before is None:
        parts.append(table(head, [_row(one, given) for one in outcomes]))
    else:
        both = [(*_row(one, given), _without(before.get(one.uid))) for one in outcomes]
        parts.append(table([*head, "WITHOUT THE CHANGE"], both))
    lost, evicted = sum(one.lost_core_s for one in outcomes), sum(one.evicted_count for one in outcomes)
    parts.append(f"at {_time(run.now_s)}: {count(evicted, 'eviction')}, {lost:.0f} core-seconds lost")
    if run.unfinished:
        of = run.repeats
        pair = "workloads" if of is None else f"{given.names[of.preemptor.uid]} and {given.names[of.victim.uid]}"
        parts.append(f"Stopped: {pair} preempt each other endlessly.")
    return "\n\n".join(parts)


def _lines(
    given: QueueCluster, run: Simulation, happened: Sequence[Happened], before: Mapping[str, Outcome]
) -> Iterator[dict[str, Any]]:
    """Yield one object per event, then one per workload."""
    for one in happened:
        line: dict[str, Any] = {
            "event": one.kind,
            "at_seconds": one.at_s,
            "workload": given.names[one.uid],
            "cluster_queue": one.queue,
        }
        if one.usage:
            line["usage"] = _plain(one.usage)
        if one.eviction is not None:
            line["eviction"] = {"cycle": one.eviction.cycle, "reason": one.eviction.reason}
            for name, party in (("preemptor", one.eviction.preemptor), ("victim", one.eviction.victim)):
                fields = {"workload": given.names[party.uid], **party._asdict()}
                del fields["amounts"]  # which come last, by FLAVOR/RESOURCE
                line["eviction"][name] = {**fields, "amounts": _plain(party.amounts)}
        if one.reason:
            line["reason"] = one.reason
        yield line
    for each in run.outcomes():
        yield _outcome(each, given, before)


def _outcome(one: Outcome, given: QueueCluster, before: Mapping[str, Outcome]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "workload": given.names[one.uid],
        "cluster_queue": one.queue,
        "state": one.state,
        "admitted_at_seconds": one.admitted_at_s,
        "evicted_count": one.evicted_count,
        "lost_core_seconds": one.lost_core_s,
    }
    done = one.entry.assignment if one.entry else None
    if one.entry is not None:
        line["reason"] = one.entry.requeue_reason or one.entry.status
    if done is not None:
        line["mode"] = done.mode
        line["targets"] = [
            {"workload": given.names[each.holder.queued.uid], "reason": each.reason} for each in done.targets
        ]
    if one.state == "waiting":
        line["position"] = one.position
    if one.wait is not None:
        line["wait"] = one.wait._asdict()
    if one.missing is not None:
        line["missing"] = _plain(one.missing.amounts)
        line["uncovered"], line["unmatched"] = one.missing.uncovered, one.missing.unmatched
    if one.uid in before:
        line["state_without_the_change"] = before[one.uid].state
    return line


def _plain(amounts: Mapping[FlavorResource, int]) -> dict[str, int]:
    return {f"{of.flavor}/{of.resource}": amount for of, amount in amounts.items()}


def _row(one: Outcome, given: QueueCluster) -> tuple[str, ...]:
    entry, wait = one.entry, ""
    if one.wait:
        wait = one.wait.state if one.wait.state != "interval" else f"{one.wait.least_s}..{one.wait.most_s} s"
    position = mode = reason = ""
    if one.state == "waiting":
        position = str(one.position)
        mode = entry.assignment.mode if entry and entry.assignment else ""
        reason = entry.requeue_reason or entry.status if entry else ""
    lacks = [] if one.missing is None or not one.missing.amounts else [_amounts(one.missing.amounts)]
    if one.missing:
        lacks += [f"no quota of {resource}" for resource in one.missing.uncovered]
        lacks += [f"no flavor for pod set {name}" for name in one.missing.unmatched]
    return given.names[one.uid], one.queue, one.state, position, wait, mode, reason, "; ".join(lacks)


def _without(was: Outcome | None) -> str:
    if was is None:
        return "absent"
    return f"{was.state}, {count(was.evicted_count, 'eviction')}" if was.evicted_count else was.state


def _detail(one: Happened, given: QueueCluster) -> str:
    if one.eviction is None:
        return one.reason or _amounts(one.usage)
    by = one.eviction.preemptor
    shares = [borrowed(each.queue, each.share_before, each.share_after) for each in (by, one.eviction.victim)]
    why = f"{one.eviction.reason} for {given.names[by.uid]} (priority {by.priority})"
    return "; ".join(filter(None, [why, *shares]))


def _amounts(amounts: Mapping[FlavorResource, int]) -> str:
    texts = (
        f"{topics.amount_text(of.resource, amount)} {of.resource} of {of.flavor}" for of, amount in amounts.items()
    )
    return ", ".join(texts)


def _time(at_s: int) -> str:
    return instant(at_s * 1000).replace(".000Z", "Z")
