"""``slacktide queue``: run or simulate a job queue."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli import proof_keys
from slacktide.deploy.cli.queue import topics
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime import garbage, process
from slacktide.deploy.runtime.progress import Bar
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    Kafka,
    bootstrap_option,
    configured,
    file,
    folder,
    process_name,
    setting,
)
from slacktide.deploy.runtime.text import Duration, count, instant, show, show_json, table
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.proof import ClusterKey
from slacktide.schemas.queue import PodsReadySettings
from slacktide.streams.analysis.explain.job import borrowed
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings
from slacktide.streams.decisions.queue.simulation import Happened, Outcome, Simulation
from slacktide.streams.tasks import ended

METRICS_PORT = 9470


@click.group(cls=Group, epilog="Example: slacktide queue simulate cluster.yaml --with one-more-job.yaml")
def command() -> None:
    """Run or simulate a job queue with quotas, by Kueue's objects and rules."""


for one in (topics.publish, topics.status, topics.outcome):
    command.add_command(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRunSettings(process.ProcessSettings):
    """Settings of one candidate."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    process_name: str = setting(
        "Name of this process in its records.", default=process_name, shown="host name and process id"
    )
    session_timeout: float = setting(
        "Seconds without a heartbeat after which another process takes over.", click.FloatRange(1, 300), default=6.0
    )
    fair_sharing: bool = setting(
        "Admit and preempt by fair sharing, like Kueue with fairSharing enabled.", click.BOOL, default=False
    )
    pods_ready_timeout: int | None = setting(
        "Evict a workload whose pods are not ready within this time.", Duration(), default=None, shown="no limit"
    )
    pods_ready_recovery_timeout: int = setting(
        "Evict a workload whose pods were ready, but are not ready again within this time. 0s: no limit.",
        Duration(),
        default="0s",
    )
    requeue_backoff_base: int = setting(
        "Time until a workload that was evicted this way is tried again. It doubles with each eviction.",
        Duration(),
        default="60s",
    )
    requeue_backoff_max: int = setting(
        "Maximum of the time until such a workload is tried again.", Duration(), default="1h"
    )
    requeue_limit: int | None = setting(
        "Number of such evictions after which a workload is deactivated.",
        click.IntRange(min=0),
        default=None,
        shown="no limit",
    )
    block_admission: bool = setting(
        "Admit no workload while an admitted workload waits for its pods.", click.BOOL, default=False
    )
    proof_keys: Path | None = setting(proof_keys.HELP, folder(exists=False), default=None)
    metrics_port: int = process.metrics_port(METRICS_PORT)


@command.command("run", epilog="Example: slacktide queue run --bootstrap kafka-1:9092,kafka-2:9092")
@configured(QueueRunSettings)
def run(settings: QueueRunSettings) -> None:
    """Decide which workloads are admitted, by the specs, workloads and outcomes in Kafka.

    Run two: one decides, the other stands by. It writes decisions and states to Kafka, and nothing to a cluster. On
    SIGTERM it finishes its turn and leaves the group.
    """
    from slacktide.agents.credit_account import QueueCredit  # noqa: PLC0415 - as below
    from slacktide.streams.engine import queueing  # noqa: PLC0415 - loads Kafka: not for --help

    garbage.seldom()
    clock = SystemClock()
    ring: list[ClusterKey] = []

    def use(keys: list[ClusterKey]) -> None:
        """Use the previous key first: after a rotation the governor may not have the newest key yet."""
        ring[:] = keys[::-1]

    keys = proof_keys.followed(settings.proof_keys, use)
    pods_ready = None
    if settings.pods_ready_timeout is not None:
        pods_ready = PodsReadySettings(
            timeout_s=settings.pods_ready_timeout // 1_000,
            recovery_timeout_s=settings.pods_ready_recovery_timeout // 1_000,
            backoff_base_s=settings.requeue_backoff_base // 1_000,
            backoff_max_s=settings.requeue_backoff_max // 1_000,
            backoff_limit=settings.requeue_limit,
            block_admission=settings.block_admission,
        )
    given = queueing.QueueSettings(
        bootstrap=settings.bootstrap,
        process=settings.process_name,
        session_timeout_ms=round(settings.session_timeout * 1_000),
        fair_sharing=settings.fair_sharing,
        pods_ready=pods_ready,
        credit=lambda tail, epoch, sender: QueueCredit(tail, epoch, sender, clock, ring),
    )

    async def work(stop: asyncio.Event, health: Health) -> None:
        following = [] if keys is None else [asyncio.create_task(keys.follow())]
        try:
            await queueing.run(given, stop, health, clock.wall_ms)
        finally:
            await ended(*following)

    process.run("queue", settings, work)


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

    Workloads are the initial state. Jobs and objects of other kinds without a Workload arrive at their creation time. A
    job runs for its annotation slacktide.io/run-seconds, or for its recorded duration. A job without either does not
    end.
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
    workloads = len(given.holders) + len(given.waiting) + len(arrivals)
    bar, happened = Bar("simulating"), list[Happened]()
    for event in simulation.run(arrivals, until_s):
        happened.append(event)
        if bar.due:
            finished = sum(each.kind == "finished" for each in happened) / workloads
            passed = 0.0 if until_s is None else (event.at_s - now_s) / max(until_s - now_s, 1)
            bar.show(max(finished, passed), f"{count(len(happened), 'event')}, at {_time(event.at_s)}")
    bar.done()
    return simulation, happened


def _text(
    given: QueueCluster, simulation: Simulation, happened: Sequence[Happened], before: Mapping[str, Outcome] | None
) -> str:
    """Format tables of events and of final states; ``before``: results without the changes."""
    parts = [*given.notes]
    if happened:
        rows = [(_time(one.at_s), one.kind, given.names[one.uid], one.queue, _detail(one, given)) for one in happened]
        parts.append(table(("TIME", "EVENT", "WORKLOAD", "QUEUE", "DETAIL"), rows))
    outcomes = list(simulation.outcomes())
    head = ["WORKLOAD", "QUEUE", "STATE", "POSITION", "WAIT", "MODE", "REASON", "LACKS"]
    if before is None:
        parts.append(table(head, [_row(one, given) for one in outcomes]))
    else:
        both = [(*_row(one, given), _without(before.get(one.uid))) for one in outcomes]
        parts.append(table([*head, "WITHOUT THE CHANGE"], both))
    lost, evicted = sum(one.lost_core_s for one in outcomes), sum(one.evicted_count for one in outcomes)
    parts.append(f"at {_time(simulation.now_s)}: {count(evicted, 'eviction')}, {lost:.0f} core-seconds lost")
    if simulation.unfinished:
        of = simulation.repeats
        pair = "workloads" if of is None else f"{given.names[of.preemptor.uid]} and {given.names[of.victim.uid]}"
        parts.append(f"Stopped: {pair} preempt each other endlessly.")
    return "\n\n".join(parts)


def _lines(
    given: QueueCluster, simulation: Simulation, happened: Sequence[Happened], before: Mapping[str, Outcome]
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
    for each in simulation.outcomes():
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
