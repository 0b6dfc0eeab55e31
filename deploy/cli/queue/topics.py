"""The queue's objects: read them from files and Kafka, publish them, show usage, report outcomes."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.suggestions import NotFoundError, near
from slacktide.deploy.runtime.settings import bootstrap_option, file
from slacktide.deploy.runtime.text import count, instant, output_option, show, show_result, table
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import CaseError, ConfigError, Finding, SlacktideError
from slacktide.schemas.message import Message
from slacktide.schemas.queue import QueueOutcome, QueueWorkload, Result
from slacktide.schemas.queue_objects import JobObject, KindObject, QueueObject
from slacktide.schemas.topics import QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD, Topic
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.cluster_objects import QueueObjects, queue_cluster
from slacktide.streams.decisions.queue.kinds.files import read_objects
from slacktide.streams.decisions.queue.preempt import excess
from slacktide.streams.decisions.queue.quota_tree import UNLIMITED
from slacktide.streams.decisions.queue.scheduling import Scheduling
from slacktide.streams.decisions.queue.workload_objects import published
from slacktide.streams.queue.ledger import ledger_of
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Out, Record, of_queue

SOURCE = "queue/publish"
SEND_S = 5.0
AMOUNTS = ("nominal", "used", "borrowed")


@click.command(epilog="Example: slacktide queue publish queues.yaml jobs.yaml --bootstrap kafka-1:9092")
@click.argument("files", type=file(), nargs=-1, required=True, metavar="FILE...")
@click.option("--delete", is_flag=True, help="Delete the objects in the files. A deleted Workload releases its quota.")
@bootstrap_option
def publish(files: tuple[Path, ...], bootstrap: Cluster, *, delete: bool) -> None:
    """Publish queues, flavors, Workloads and Jobs of files to Kafka, where `slacktide queue run` reads them.

    An object without a creation time gets the current time. A Workload with the condition Finished is done. A Job
    becomes its Workload; the files must contain its priority class.
    """
    objects = objects_in(files)
    given = QueueObjects(objects)
    made = [given.workload_of(one) if isinstance(one, JobObject | KindObject) else one for one in objects]
    now_ms = SystemClock().wall_ms()
    records = [record for one in made if one and (record := published(one, instant(now_ms)))]
    topics = [QUEUE_WORKLOAD if isinstance(one.message, QueueWorkload) else QUEUE_SPEC for one in records]
    outs = [
        _out(topic, one.key, None if delete else one.message, now_ms)
        for topic, one in zip(topics, records, strict=True)
    ]
    if not outs:
        kinds = "ClusterQueue, Cohort, ResourceFlavor, LocalQueue, Namespace, Workload, Job and the kinds of jobs"
        raise SlacktideError(f"no object of a queue; accepted: {kinds}")
    asyncio.run(_sent(bootstrap, outs))
    for note in given.notes:
        show(note)
    show(f"{'deleted' if delete else 'published'} {count(len(outs), 'object')}")


@click.command(epilog="Example: slacktide queue status -o wide --bootstrap kafka-1:9092")
@output_option("text", "wide", "json")
@click.option("--kubeconfig", type=file(), metavar="FILE", help="Also show whether Jobs of this cluster are started.")
@bootstrap_option
def status(bootstrap: Cluster, output: str, kubeconfig: Path | None) -> None:
    """Show each ClusterQueue: quota, use, borrowed quota, and the numbers of pending and admitted workloads.

    After quotas shrank, it lists what exceeds them, and which workloads must stop.

    With -o wide: a row for each flavor and resource. With -o json: a list of {"cluster_queue", "cohort",
    "pending_count", "admitted_count", "evicting_count", "quotas": [{"flavor", "resource", "nominal", "used",
    "borrowed"}]}. CPU is in millicores, memory in bytes.
    """
    found = standing(live_objects(bootstrap))
    show_result(found.queues, output, lambda: table(*rows(found.queues, wide=output == "wide")), indent=0)
    if output == "json":
        return
    for line in found.exceeds:
        show(line)
    if kubeconfig is not None:
        show(asyncio.run(_carrying(kubeconfig)))
    for note in found.notes:
        show(note)


@click.command(epilog="Example: slacktide queue outcome lab/train stopped --bootstrap kafka-1:9092")
@click.argument("name", metavar="NAMESPACE/NAME")
@click.argument("result", type=click.Choice(get_args(Result)))
@bootstrap_option
def outcome(name: str, result: Result, bootstrap: Cluster) -> None:
    """Report the outcome of a Workload's admission, if it is started and stopped without Kubernetes.

    started; stopped: none of its pods runs; finished; conflict or refused: it was not started.
    """
    records = asyncio.run(_read(bootstrap, (QUEUE_WORKLOAD, QUEUE_STATE)))
    states = ledger_of([one for one in records if one.topic == QUEUE_STATE.name], ()).states
    names = {
        f"{one.metadata.namespace or 'default'}/{one.metadata.name}": one.metadata.uid for one in objects_of(records)
    }
    state = states.get(names.get(name, ""))
    if name not in names or state is None or state.booking is None:
        holding = [known for known, uid in names.items() if uid in states and states[uid].booking is not None]
        raise NotFoundError(f"Workload {name} holds no quota; {near(name, holding)}")
    now_ms, booking = SystemClock().wall_ms(), state.booking
    answer = QueueOutcome(uid=state.uid, result=result, epoch=booking.epoch, turn=booking.turn, acted_ms=now_ms)
    asyncio.run(_sent(bootstrap, [_out(QUEUE_OUTCOME, state.uid, answer, now_ms)]))
    show(f"{name} {result}")


def live_objects(bootstrap: Cluster) -> list[QueueObject]:
    """Return all current queue objects in Kafka."""
    return objects_of(asyncio.run(_read(bootstrap, (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE))))


def _out(topic: Topic, key: str, message: Message | None, now_ms: int) -> Out:
    value = None if message is None else encode(message)
    return of_queue(topic.name, key, value, source=SOURCE, event_ms=now_ms)


async def _sent(bootstrap: Cluster, outs: Sequence[Out]) -> None:
    from slacktide.streams.kafka import Sender  # noqa: PLC0415 - loads Kafka: not for --help

    sender = Sender(bootstrap, client_id="slacktide-queue-publish", timeout_s=SEND_S)
    try:
        await sender.connect(sorted({out.topic for out in outs}))
        await sender.send(outs)
    finally:
        await sender.close()


async def _read(bootstrap: Cluster, topics: Sequence[Topic]) -> list[Record]:
    from slacktide.streams.kafka import read_topic  # noqa: PLC0415 - loads Kafka: not for --help

    found: list[Record] = []
    for topic in topics:
        async with aclosing(read_topic(bootstrap, topic.name)) as records:
            found += [record async for record in records]
    return found


def objects_in(files: Sequence[Path], given: Iterable[QueueObject] = ()) -> list[QueueObject]:
    """Read files; a later object replaces an earlier one. Raises ConfigError if a file or an object is invalid."""
    documents: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}
    for path in files:
        try:
            for where, item in _items(load_yaml(path)):
                given_names = item.get("metadata")
                names = given_names if isinstance(given_names, dict) else {}
                key = str(item.get("kind")), str(names.get("namespace") or "default"), str(names.get("name"))
                documents[key] = f"{path}\n{where}", item
        except CaseError as exc:
            raise _refused(str(path), exc.field, exc.why) from exc
    try:
        read = read_objects(documents.values())
    except CaseError as exc:
        file, _, field = exc.field.partition("\n")
        raise _refused(file, field.lstrip("."), exc.why) from exc
    return list({_key(one): one for one in (*given, *read)}.values())


def _key(one: QueueObject) -> tuple[str, ...]:
    kind = one.kind if isinstance(one, KindObject) else type(one).__name__
    return kind, one.metadata.namespace, one.metadata.name


def _refused(file: str, field: str, why: str) -> ConfigError:
    value, _, accepted = why.rpartition("; accepted: ")
    return ConfigError([Finding(file=file, field=field, value=value or "unusable", accepted=accepted)])


def _items(document: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of a List, or the file's one object, each with its path."""
    if not isinstance(document, dict):
        raise CaseError("content", "a Kubernetes object, or a List of them")
    if not str(document.get("kind", "")).endswith("List"):
        yield "", document
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise CaseError("items", "a list of Kubernetes objects")
    for at, one in enumerate(items):
        if not isinstance(one, dict):
            raise CaseError(f"items[{at}]", "a Kubernetes object")
        yield f"items[{at}]", one


async def _carrying(kubeconfig: Path) -> str:
    """Report in one line that Jobs are started and stopped, or why not. Raises ApiError or ConfigError."""
    from slacktide.agents.cluster.queue.kueue import GROUP, kueue, served, workloads_of  # noqa: PLC0415 - loads HTTP
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415 - as above
    from slacktide.agents.kubernetes.api_server import ApiServer  # noqa: PLC0415 - as above

    async with ApiServer(await access(kubeconfig), name="slacktide-queue-status") as api:
        kinds, plurals = await served(api)
        if not kinds:
            return f"shadow: the API server does not serve {GROUP}"
        rival = await kueue(api, workloads_of(plurals), SystemClock().wall_ms)
    return f"shadow: Kueue admits there: {rival}" if rival else "live: a bridge with --queue starts and stops Jobs"


class QuotaRow(msgspec.Struct, frozen=True):
    """One resource of a flavor; CPU in millicores, memory in bytes, others in whole units."""

    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    """Use above the nominal quota."""


class QueueRow(msgspec.Struct, frozen=True):
    """One ClusterQueue."""

    cluster_queue: str
    cohort: str
    pending_count: int
    admitted_count: int
    """Workloads with quota, including those that are stopping."""
    evicting_count: int
    quotas: list[QuotaRow]


class Standing(NamedTuple):
    """All ClusterQueues by name, and notes about objects that could not be counted."""

    queues: list[QueueRow]
    notes: list[str]
    exceeds: list[str]
    """A line for each ClusterQueue that exceeds its quotas after they shrank."""


def standing(objects: Sequence[QueueObject]) -> Standing:
    """Compute the usage of ClusterQueues. Raises CaseError if an object is invalid."""
    given = queue_cluster(objects)
    state = Scheduling(given.queues, given.holders)
    waiting = Counter(one.queue for one in given.waiting)
    evicted = [one for one in given.holders if one.queued.evicted is not None and one.queued.evicted.status]
    admitted, evicting = (Counter(one.queue.name for one in some) for some in (given.holders, evicted))
    queues = []
    for node in sorted((one.node for one in given.queues), key=lambda node: node.name):
        quotas = [
            QuotaRow(
                of.flavor, of.resource, quota.nominal, used := state.usage.usage(node, of), max(0, used - quota.nominal)
            )
            for of, quota in sorted(node.quotas.items())
        ]
        name, cohort = node.name, node.parent.name if node.parent is not None else ""
        queues.append(QueueRow(name, cohort, waiting[name], admitted[name], evicting[name], quotas))
    exceeds = []
    for one in excess(state.holders.values(), state.usage):
        texts = [(amount_text(of.resource, amount), of) for of, amount in sorted(one.amounts.items())]
        amounts = ", ".join(f"{text} {of.resource} of {of.flavor}" for text, of in texts)
        names = ", ".join(given.names.get(uid, uid) for uid in one.stops)
        stops = f"will be stopped: {names or 'workloads of other ClusterQueues, which borrow'}"
        exceeds.append(f"ClusterQueue {one.queue} exceeds its quota by {amounts}; {stops}")
    return Standing(queues, given.notes, exceeds)


def rows(queues: Sequence[QueueRow], *, wide: bool) -> tuple[list[str], list[tuple[str | int, ...]]]:
    """Return the table's header and rows."""
    of_flavor = ["FLAVOR", "RESOURCE"] if wide else []
    head = ["CLUSTERQUEUE", "COHORT", *of_flavor, *map(str.upper, AMOUNTS), "PENDING", "ADMITTED", "EVICTING"]
    found: list[tuple[str | int, ...]] = []
    for one in queues:
        first = one.cluster_queue, one.cohort or "-"
        last = one.pending_count, one.admitted_count, one.evicting_count
        if wide:
            for each in one.quotas:
                amounts = (amount_text(each.resource, getattr(each, name)) for name in AMOUNTS)
                found.append((*first, each.flavor, each.resource, *amounts, *last))
        else:
            sums = []
            for name in AMOUNTS:  # over flavors, per resource
                total: Counter[str] = Counter()
                for each in one.quotas:
                    total[each.resource] += getattr(each, name)
                sums.append(
                    ", ".join(f"{amount_text(of, amount)} {of}" for of, amount in total.items() if amount) or "-"
                )
            found.append((*first, *sums, *last))
    return head, found


def amount_text(resource: str, amount: int) -> str:
    """Format an amount with its unit: CPU in cores, memory in powers of 1,024."""
    if amount >= UNLIMITED:
        return "unlimited"
    return cpu_text(amount) if resource == "cpu" else mem_text(amount) if resource == "memory" else str(amount)
