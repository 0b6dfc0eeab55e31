"""``slacktide queue``: run or simulate a job queue."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from slacktide.deploy.cli.queue import run, topics
from slacktide.deploy.cli.queue.report import lines, report
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime.settings import bootstrap_option, file
from slacktide.deploy.runtime.text import Duration, show, show_json
from slacktide.schemas.connection import Cluster
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings
from slacktide.streams.decisions.queue.simulation import Happened, Outcome, Simulation


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
        for line in lines(given, done, happened, before):
            show_json(msgspec.json.encode(line))
    else:
        show(report(given, done, happened, before if changes else None))


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
