"""The queue's objects: read them from files and Kafka, publish them, show usage, report outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.queue.standing import exceeds_text, rows, standing
from slacktide.deploy.cli.suggestions import NotFoundError, near
from slacktide.deploy.runtime.settings import bootstrap_option, file
from slacktide.deploy.runtime.text import count, instant, show, show_json, table
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import CaseError, ConfigError, Finding, SlacktideError
from slacktide.schemas.message import Message
from slacktide.schemas.queue import QueueOutcome, QueueWorkload, Result
from slacktide.schemas.queue_objects import JobObject, QueueObject
from slacktide.schemas.topics import QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD, Topic
from slacktide.streams.decisions.queue.cluster_objects import QueueObjects, read_objects
from slacktide.streams.decisions.queue.workload_objects import Published, published
from slacktide.streams.queue.ledger import ledger_of
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Out, Record, of_queue

SOURCE = "queue/publish"
SEND_S = 5.0


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
    made = [given.workload_of(one) if isinstance(one, JobObject) else one for one in objects]
    now_ms = SystemClock().wall_ms()
    records = [record for one in made if one and (record := published(one, instant(now_ms)))]
    outs = [_out(_topic_of(one), one.key, None if delete else one.message, now_ms) for one in records]
    if not outs:
        raise SlacktideError("no object of a queue; accepted: ClusterQueue, "
            "Cohort, ResourceFlavor, LocalQueue, Namespace, "
            "Workload "
            "and Job")  # fmt: skip
    asyncio.run(_sent(bootstrap, outs))
    for note in given.notes:
        show(note)
    show(f"{'deleted' if delete else 'published'} {count(len(outs), 'object')}")


@click.command(epilog="Example: slacktide queue status -o wide --bootstrap kafka-1:9092")
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json"]), default="text", show_default=True)
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
    if output == "json":
        show_json(msgspec.json.encode(found.queues))
        return
    show(table(*rows(found.queues, wide=output == "wide")))
    for one in found.exceeds:
        show(exceeds_text(one))
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


def _topic_of(one: Published) -> Topic:
    return QUEUE_WORKLOAD if isinstance(one.message, QueueWorkload) else QUEUE_SPEC


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
    """Read files; a later object replaces an earlier one of the same name.

    Raises:
        ConfigError: a file is unreadable, or an object invalid.
    """
    found = {(type(one).__name__, one.metadata.namespace, one.metadata.name): one for one in given}
    for path in files:
        try:
            for one in read_objects(_items(load_yaml(path))):
                found[type(one).__name__, one.metadata.namespace, one.metadata.name] = one
        except CaseError as exc:
            finding = Finding(file=str(path), field=exc.field, value="unusable", accepted=exc.why)
            raise ConfigError([finding]) from exc
    return list(found.values())


def _items(document: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
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
    """Report in one line that Jobs are started and stopped, or why not.

    Raises:
        ApiError: the API server is unavailable.
        ConfigError: the kubeconfig is invalid.
    """
    from slacktide.agents.cluster.queue.kueue import GROUP, kueue, served, workloads_of  # noqa: PLC0415 - loads HTTP
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415 - as above
    from slacktide.agents.kubernetes.api_server import ApiServer  # noqa: PLC0415 - as above

    async with ApiServer(await access(kubeconfig), name="slacktide-queue-status") as api:
        kinds, plurals = await served(api)
        if not kinds:
            return f"shadow: the API server does not serve {GROUP}"
        rival = await kueue(api, workloads_of(plurals), SystemClock().wall_ms)
    return f"shadow: Kueue admits there: {rival}" if rival else "live: a bridge with --queue starts and stops Jobs"
