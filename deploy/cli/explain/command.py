"""``slacktide explain``: explains a node, pod, Job or service."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.suggestions import Group, NotFoundError, near
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Duration, Name, output_option, show_result
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import JOB_STATUS, QUEUE_DECISION

if TYPE_CHECKING:  # not needed for --help
    from slacktide.streams.analysis.explain.job import JobExplanation, QueuePlace
    from slacktide.streams.analysis.explain.node import NodeExplanation
    from slacktide.streams.analysis.explain.pod import PodExplanation
    from slacktide.streams.analysis.explain.service import ServiceExplanation, Services

EVICTED_MS = 60_000
"""Tolerated difference between the clocks of brokers and the queue's decider."""
STANDARD_INPUT = Path("/dev/stdin")


@click.group(cls=Group, epilog="Example: slacktide explain node node-1 --bootstrap kafka-1:9092")
def command() -> None:
    """Explain a node's batch resources, why a pod waits or is evicted, or what slows a service down.

    The commands only read Kafka.

    Exit code 0: explained; 1: Kafka has no record of it, or could not be read; 2: wrong usage.
    """


@command.command(epilog="Example: slacktide explain node node-1 --bootstrap kafka-1:9092")
@click.argument("name", type=Name())
@settings.bootstrap_option
@click.option(
    "--since", type=Duration(), default="10m", show_default=True, help="How far back to read: 90s, 5m, 2h or 1d."
)
@output_option("text", "json")
def node(name: str, bootstrap: Cluster, since: int, output: str) -> None:
    """Explain a node by its chain of records: sample, window, allocatable, command, outcome, with the arithmetic.

    Each record has its age, topic, partition and offset, and those of its inputs. Findings come first: what is stale,
    of another policy, or was not carried out, with what to do.

    With --output json: {"node", "asked_ms", "policy_version", "policy_place", "steps": [{"name", "place", "age_ms",
    "inputs", "record"}, ...], "figures": [{"of", "published", "because", "floored", "emptied_by"}, ...], "findings":
    [{"name", "severity", "text", "advice"}, ...]}; fields with default values are omitted, as in the topic.
    """
    from slacktide.deploy.cli.explain.node_text import node_text  # noqa: PLC0415

    explanation = asyncio.run(_node(name, bootstrap, since))
    show_result(explanation, output, lambda: node_text(explanation))


async def _node(name: str, bootstrap: Cluster, since: int) -> NodeExplanation:
    from slacktide.deploy.cli.explain.log import opened, shortened  # noqa: PLC0415
    from slacktide.streams.analysis.explain.node import explain_node  # noqa: PLC0415
    from slacktide.streams.analysis.explain.node_log import node_log  # noqa: PLC0415

    now_ms = SystemClock().wall_ms()
    async with opened(bootstrap, now_ms) as log:
        read = await log.node(name, now_ms - since)
        found = node_log(name, read.records)
        if not found.known:
            names = await log.node_names()
            raise NotFoundError(f"{bootstrap}: no topic has a record of node {name}; {near(name, names)}")
    explanation = explain_node(found, now_ms)
    return replace(explanation, findings=[*explanation.findings, *shortened(read.short)])


@command.command(epilog="Example: slacktide explain pod jobs/etl-x2lqp --file pod.yaml --bootstrap kafka-1:9092")
@click.argument("name", metavar="NAMESPACE/NAME", type=Name())
@settings.bootstrap_option
@click.option(
    "--since",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How far back to read evictions: 90s, 5m, 2h or 1d.",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File with the pod, in the format of `kubectl get pod -o yaml`, alone or in a List that may contain Services. "
    "-: standard input. Required for a pod that is not on a node.",
)
@output_option("text", "json")
def pod(name: str, bootstrap: Cluster, since: int, file: Path | None, output: str) -> None:
    """Explain why a pod waits or is evicted, and check its labels and resources as a best-effort pod.

    It compares the pod's requests with the free amounts of each node, and its selector with their labels. It lists
    evictions of the pod and of its controller's other pods: rule, threshold, observed value, result, credit spent.
    """
    from slacktide.deploy.cli.explain.workload_text import pod_text  # noqa: PLC0415

    namespace, short = _parts(name)
    explanation = asyncio.run(_pod(namespace, short, bootstrap, since, file))
    show_result(explanation, output, lambda: pod_text(explanation))


async def _pod(namespace: str, name: str, bootstrap: Cluster, since: int, file: Path | None) -> PodExplanation:
    from slacktide.deploy.cli.explain.log import opened, pod_log, shortened  # noqa: PLC0415
    from slacktide.streams.analysis.explain.manifest import manifest_of  # noqa: PLC0415
    from slacktide.streams.analysis.explain.pod import explain_pod  # noqa: PLC0415

    manifest = None
    if file is not None:
        given = STANDARD_INPUT if str(file) == "-" else file
        manifest = manifest_of(load_yaml(given), str(given), namespace, name)
    now_ms = SystemClock().wall_ms()
    async with opened(bootstrap, now_ms) as log:
        found, short = await pod_log(log, namespace, name, since)
    explanation = explain_pod(found, namespace, name, manifest, now_ms)
    if explanation is None:
        metrics = [log.metric.body for log in found.nodes if log.metric is not None]
        names = {f"{one.namespace}/{one.name}" for metric in metrics for one in metric.pods if one.name}
        raise NotFoundError(
            f"{bootstrap}: pod {namespace}/{name} has no figures, no eviction, and is in no node's pod list; "
            f"{near(f'{namespace}/{name}', names)}. Give a pod that is not on a node as a file: kubectl get pod "
            f"-n {namespace} {name} -o yaml | slacktide explain pod {namespace}/{name} --file -"
        )
    return replace(explanation, findings=[*explanation.findings, *shortened(short)])


@command.command(epilog="Example: slacktide explain job jobs/etl --bootstrap kafka-1:9092")
@click.argument("name", metavar="NAMESPACE/NAME", type=Name())
@settings.bootstrap_option
@output_option("text", "json")
def job(name: str, bootstrap: Cluster, output: str) -> None:
    """Explain where a Job stands: progress, failures by rule, evictions, lost CPU time, and its place in a queue.

    It reads the Job's newest status, which stream workers publish from the events of its pods. Of a queue it shows
    position, reason and wait, what the Job lacks, and which workload preempted it.

    With --output json: {"namespace", "name", "asked_ms", "place", "age_ms", "left", "pace_per_min", "findings",
    "status", "queue"}. The status is the record of the topic slacktide.job.status.v1, without defaults.
    """
    from slacktide.deploy.cli.explain.workload_text import job_text, queue_text  # noqa: PLC0415
    from slacktide.streams.analysis.explain.job import JobExplanation  # noqa: PLC0415

    now_ms = SystemClock().wall_ms()
    found = asyncio.run(_job(*_parts(name), bootstrap, now_ms))
    text = partial(job_text, found) if isinstance(found, JobExplanation) else partial(queue_text, found, now_ms)
    show_result(found, output, text)


async def _job(namespace: str, name: str, bootstrap: Cluster, now_ms: int) -> JobExplanation | QueuePlace:
    """Return the Job, or only its place in the queue if it has no status."""
    from slacktide.deploy.cli.explain.log import job_statuses, queue_of, records_since  # noqa: PLC0415
    from slacktide.streams.analysis.explain.job import Queue, explain_job, statuses  # noqa: PLC0415
    from slacktide.streams.decisions.queue.missing import WINDOW_S  # noqa: PLC0415

    records = await job_statuses(bootstrap, namespace, name, now_ms)
    found = explain_job(statuses(records), namespace, name, now_ms)
    queue = Queue(await queue_of(bootstrap))
    workload, place = queue.workload(namespace, name, "" if found is None else found.status.uid), None
    if workload is not None:
        evicted_ms = queue.state(workload).evicted_ms
        since_ms = now_ms - WINDOW_S * 1_000
        since_ms = min(since_ms, evicted_ms - EVICTED_MS) if evicted_ms else since_ms
        place = queue.explained(workload, await records_since(bootstrap, QUEUE_DECISION, since_ms), now_ms)
    if found is None and place is not None:
        return place
    if found is None:
        known = statuses(await records_since(bootstrap, JOB_STATUS, since_ms=0))
        names = near(f"{namespace}/{name}", [f"{one.body.namespace}/{one.body.name}" for one in known])
        raise NotFoundError(f"{bootstrap}: no status of Job {namespace}/{name}; {names}")
    return replace(found, queue=place)


@command.command(epilog="Example: slacktide explain service shop/web --bootstrap kafka-1:9092")
@click.argument("name", metavar="[NAMESPACE/NAME]", type=Name(), required=False)
@settings.bootstrap_option
@output_option("text", "json")
def service(name: str | None, bootstrap: Cluster, output: str) -> None:
    """Explain how much best-effort work slows down a service, and the cap on best-effort CPU that follows.

    NAME is that of the Deployment, StatefulSet or other controller of the pods. Without it, all services are listed,
    the most sensitive first. docs/learned-caps.md explains how the slope is learned.

    With --output json: {"service", "asked_ms", "place", "age_ms", "mode", "budget_pct", "cap_pct", "half", "alone_pct",
    "latency", "missing", "tenths", "minutes", "published_place", "findings", "profile"}. The profile is the record of
    the topic slacktide.service.profile.v1, without defaults and without the sums of nodes. The list is {"asked_ms",
    "mode", "budget_pct", "services"}.
    """
    from slacktide.deploy.cli.explain.service_text import service_text, services_text  # noqa: PLC0415

    now_ms = SystemClock().wall_ms()
    if name is None:
        every = asyncio.run(_services(bootstrap, now_ms))
        show_result(every, output, partial(services_text, every))
    else:
        found = asyncio.run(_service(*_parts(name), bootstrap, now_ms))
        show_result(found, output, partial(service_text, found))


async def _services(bootstrap: Cluster, now_ms: int) -> Services:
    from slacktide.deploy.cli.explain.log import service_records  # noqa: PLC0415
    from slacktide.streams.analysis.explain.service import colocation_in, explain_services, why_none  # noqa: PLC0415

    records = await service_records(bootstrap)
    found = explain_services(records, now_ms, colocation_in(records))
    if not found.services:
        raise NotFoundError(f"{bootstrap}: no service has a profile; {why_none(found.mode)}")
    return found


async def _service(namespace: str, name: str, bootstrap: Cluster, now_ms: int) -> ServiceExplanation:
    from slacktide.deploy.cli.explain.log import nodes_of_owner, service_records  # noqa: PLC0415
    from slacktide.streams.analysis.explain.service import (  # noqa: PLC0415
        colocation_in,
        explain_service,
        profiles,
        why_none,
    )

    service = f"{namespace}/{name}"
    records = await service_records(bootstrap, service)
    colocation = colocation_in(records)
    found = explain_service(records, service, now_ms, colocation)
    if found is None:
        nodes = await nodes_of_owner(bootstrap, namespace, name, now_ms)
        names = near(service, [one.body.service for one in profiles(await service_records(bootstrap))])
        why = why_none(colocation.learned_caps, nodes)
        raise NotFoundError(f"{bootstrap}: no profile of service {service}; {names}. {why}")
    return found


def _parts(name: str) -> tuple[str, str]:
    namespace, slash, short = name.partition("/")
    if not (namespace and slash and short) or "/" in short:
        raise click.BadParameter(
            f"{name!r} is not of the form NAMESPACE/NAME, such as jobs/etl", param_hint="NAMESPACE/NAME"
        )
    return namespace, short
