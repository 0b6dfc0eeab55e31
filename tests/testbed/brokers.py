"""The brokers that tests run on: the embedded one, and Apache Kafka, alone or three of it. Loopback only."""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import random
import signal
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from slacktide.deploy.runtime.broker import program
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import TOPICS

from . import rungs
from .cluster.programs import Program
from .filled import filled
from .hosts import HERE, Host
from .reaching import needs

START_S = 120.0
LEADERS_S, WORK_S, AGAIN_S = 30.0, 120.0, 0.2
STOP_S = 20.0


PROCESSES_MAX = 16
PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES_MAX
"""Which of the processes that run tests side by side this is."""
_given: set[int] = set()


def free_port() -> int:
    """A port on loopback that nobody listens on, and below those that connections going out are given.

    It may be a while until somebody listens there: no port is given twice, and each process of tests has its own.
    """
    while True:
        port = random.randrange(10_000 + PROCESS, 30_000, PROCESSES_MAX)
        if port not in _given:
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port


def _administer(bootstrap: str, work: Callable[[AIOKafkaAdminClient], Awaitable[None]]) -> None:
    """Do it on a loop in a thread: callers may stand in a loop of their own.

    What a broker does not answer is asked once more: one that a test killed or stopped may be busy for seconds.
    """

    async def once() -> bool:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=10_000)
        try:
            await admin.start()
            await work(admin)
        except KafkaError as exc:
            if not exc.retriable:
                raise
            return False
        finally:
            await admin.close()
        return True

    async def administer() -> None:
        async with asyncio.timeout(WORK_S):
            while not await once():  # noqa: ASYNC110 - a broker tells nobody when it answers again
                await asyncio.sleep(AGAIN_S)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, administer()).result()


async def _topics(admin: AIOKafkaAdminClient) -> set[str]:
    return {name for name in await admin.list_topics() if not name.startswith("__")}


async def _delete_topics(admin: AIOKafkaAdminClient) -> None:
    if names := await _topics(admin):
        _check((await admin.delete_topics(sorted(names))).topic_error_codes, UnknownTopicOrPartitionError)
    while await _topics(admin):  # noqa: ASYNC110 - Kafka tells nobody when a topic is gone
        await asyncio.sleep(0.02)


async def _create_topics(
    admin: AIOKafkaAdminClient, partitions: int | None, bootstrap: str, brokers: int, settings: Mapping[str, str]
) -> None:
    wanted = [
        NewTopic(
            name=topic.name,
            num_partitions=topic.partitions if topic.partitions == 1 else partitions or topic.partitions,
            replication_factor=min(topic.replication, brokers),
            topic_configs=topic.config(min(topic.replication, brokers)) | settings,
        )
        for topic in TOPICS
    ]
    _check((await admin.create_topics(wanted)).topic_errors, TopicAlreadyExistsError)
    await _await_leaders([topic.name for topic in TOPICS], bootstrap)


async def _await_leaders(names: list[str], bootstrap: str) -> None:
    """Ask each partition for its end: before all answer, producers and consumers would only log retries.

    A client that asks while leaders are being chosen has been seen to wait for ever: then another one asks.
    """
    log = logging.getLogger("aiokafka")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        while True:  # until whoever waits for all of it gives up
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEADERS_S):
                    return await _ask_for_ends(names, bootstrap)
    finally:
        log.setLevel(level)


async def _ask_for_ends(names: list[str], bootstrap: str) -> None:
    consumer = AIOKafkaConsumer(*names, bootstrap_servers=bootstrap, retry_backoff_ms=20)
    try:
        await consumer.start()
        await consumer.end_offsets(consumer.assignment())
    finally:
        await consumer.stop()


def _check(answers: list[tuple[str, int]] | list[tuple[str, int, str]], fine: type[KafkaError]) -> None:
    for name, code, *_ in answers:
        error = for_code(code)
        if code and error is not fine:
            raise error(name)


class _Broker(Program):
    def __init__(self, kind: str, folder: Path, host: Host = HERE) -> None:
        super().__init__(f"{kind} broker", folder / "broker.log")
        self.kind = kind
        self.folder = folder
        self.host = host
        self.bootstrap = f"{host.address}:{free_port()}"

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap)

    def _spawn(self, command: list[str]) -> None:
        super().start([*self.host.prefix, *command], lambda: self.host.inside(self._answers), START_S)

    def _answers(self) -> bool:
        host, _, port = self.bootstrap.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
        return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        super().stop(how, STOP_S)

    def apply_topics(self, partitions: int | None = None, settings: Mapping[str, str] = {}) -> None:
        """Create what the table of topics lists and is not there yet; all single-partition topics stay so."""
        _administer(self.bootstrap, lambda admin: _create_topics(admin, partitions, self.bootstrap, 1, settings))


class EmbeddedBroker(_Broker):
    """Tansu, as the one-machine stack runs it: in memory, so that an outage forgets everything."""

    def __init__(self, folder: Path, host: Host = HERE) -> None:
        super().__init__("embedded", folder, host)

    def start(self) -> None:
        url = f"tcp://{self.bootstrap}"
        binary = str(program())
        self._spawn([binary, "broker", "--listener-url", url, "--advertised-listener-url", url])

    def forget(self) -> None:
        """Lose all topics and what is in them: a new process."""
        self.stop()
        self.start()


DATED_BY_CLIENTS = {"message.timestamp.type": "CreateTime"}
"""As topics were made before: a test that dates records itself needs it."""
CLUSTER = "c2xhY2t0aWRlLXRlc3RiZQ"
REPLICAS, INSYNC = 3, 2


@needs("kafka", "attack", "stack")
class KafkaBroker(_Broker):
    """Apache Kafka on Java; what it holds outlives an outage."""

    def __init__(
        self,
        folder: Path,
        *,
        node: int = 1,
        controllers: Mapping[int, str] | None = None,
        format_options: Iterable[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        host: Host = HERE,
        java: Sequence[str] = (),
    ) -> None:
        """Not started yet; without ``controllers``, by number, it is alone. Of settings of a name the last holds."""
        super().__init__("kafka", folder, host)
        self._options = tuple(java)
        controllers = controllers or {node: f"{host.address}:{free_port()}"}
        alone = len(controllers) == 1
        self._heap_mb = 512 if alone else 256
        self._properties = folder / "server.properties"
        self._properties.write_text(
            filled(
                "kafka.properties",
                bootstrap=self.bootstrap,
                node=node,
                controller=controllers[node],
                voters=",".join(f"{number}@{address}" for number, address in controllers.items()),
                folder=folder,
                replicas=1 if alone else REPLICAS,
                insync=1 if alone else INSYNC,
            )
            + "".join(f"{name}={value}\n" for name, value in settings.items())  # the last of a name holds
        )
        (folder / "log").mkdir()
        self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._properties), *format_options)

    def _command(self, main: str, *arguments: str) -> list[str]:
        return [
            "java", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            *self._options, "-cp", f"{rungs.kafka_libs()}/*", main, *arguments,
        ]  # fmt: skip

    def _java(self, main: str, *arguments: str) -> None:
        done = subprocess.run(self._command(main, *arguments), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{main} failed:\n{done.stdout}{done.stderr}")

    def start(self) -> None:
        self._spawn(self._command("kafka.Kafka", str(self._properties)))

    def forget(self) -> None:
        _administer(self.bootstrap, _delete_topics)

    def delete(self, topic: str) -> None:
        """Lose one topic; one that is there again at once is another."""

        async def delete(admin: AIOKafkaAdminClient) -> None:
            _check((await admin.delete_topics([topic])).topic_error_codes, UnknownTopicOrPartitionError)

        _administer(self.bootstrap, delete)

    def topics(self) -> set[str]:
        found: set[str] = set()

        async def ask(admin: AIOKafkaAdminClient) -> None:
            found.update(await _topics(admin))

        _administer(self.bootstrap, ask)
        return found


@needs("kafka", "attack", "stack")
class KafkaCluster:
    """Three brokers; what is acknowledged by all in-sync replicas outlives any one of them."""

    def __init__(
        self, folder: Path, hosts: Sequence[Host] = (HERE,) * REPLICAS, asking: Host = HERE, java: Sequence[str] = ()
    ) -> None:
        self._asking = asking
        where = dict(enumerate(hosts, 1))
        controllers = {number: f"{host.address}:{free_port()}" for number, host in where.items()}
        for number in controllers:
            (folder / str(number)).mkdir()
        with concurrent.futures.ThreadPoolExecutor(len(controllers)) as threads:  # each asks Java to lay out its folder
            self.nodes = list(
                threads.map(
                    lambda n: KafkaBroker(folder / str(n), node=n, controllers=controllers, host=where[n], java=java),
                    where,
                )
            )
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap)

    def start(self) -> None:
        """Start those that are down, and return when all are members."""
        down = [node for node in self.nodes if not node.running]
        with concurrent.futures.ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(KafkaBroker.start, down))
        self._administer(_await_brokers)

    def stop(self) -> None:
        """End all at once: asked to end, each would wait for a quorum that is gone."""
        with concurrent.futures.ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(lambda node: node.stop(signal.SIGKILL), self.nodes))

    def apply_topics(self, partitions: int | None = None) -> None:
        """Create what the table of topics lists and is not there yet, replicated as it says."""
        self._administer(lambda admin: _create_topics(admin, partitions, self.bootstrap, REPLICAS, {}))

    def forget(self) -> None:
        self._administer(_delete_topics)

    def leader_of(self, topic: str, partition: int) -> KafkaBroker:
        found: list[KafkaBroker] = []

        async def ask(admin: AIOKafkaAdminClient) -> None:
            [told] = await admin.describe_topics([topic])
            leaders = {one["partition"]: one["leader"] for one in told["partitions"]}
            found.append(self.nodes[leaders[partition] - 1])

        self._administer(ask)
        return found[0]

    def _administer(self, work: Callable[[AIOKafkaAdminClient], Awaitable[None]]) -> None:
        self._asking.inside(lambda: _administer(self.bootstrap, work))


async def _await_brokers(admin: AIOKafkaAdminClient) -> None:
    while len((await admin.describe_cluster())["brokers"]) < REPLICAS:  # noqa: ASYNC110 - Kafka tells nobody
        await asyncio.sleep(0.05)


B = TypeVar("B", EmbeddedBroker, KafkaBroker, KafkaCluster)


@contextlib.contextmanager
def running(make: Callable[[Path], B]) -> Iterator[B]:
    """A broker in a folder of its own, both gone afterwards."""
    # In memory where it can be: a topic's creation waits for the disk some 200 times.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="slacktide-broker-", dir=place, ignore_cleanup_errors=True) as folder:
        broker = make(Path(folder))
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
