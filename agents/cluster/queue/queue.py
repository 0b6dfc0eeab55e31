"""Runs the job queue in the leading bridge: records to Kafka, decisions to the cluster."""

import asyncio
import logging
from collections.abc import Sequence

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.actuator import Actuator
from slacktide.agents.cluster.queue.job import JOB
from slacktide.agents.cluster.queue.kinds import read_rows, served_kinds
from slacktide.agents.cluster.queue.known import SOURCE, Known
from slacktide.agents.cluster.queue.kueue import GROUP, Quotas, kueue, served, workloads_of
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.status import Notices, Statuses
from slacktide.agents.cluster.queue.work import Kind, Work
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import ApiError, Resource
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, ConfigError, LogError
from slacktide.schemas.queue import QueueOutcome, QueueState
from slacktide.schemas.topics import QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.kinds.rows import Row
from slacktide.streams.kafka import WHOLE, Refused, Sender, Tail
from slacktide.streams.records import Out, Record, of_queue, text_of
from slacktide.streams.tasks import ended, until_one_ends

log = logging.getLogger(__name__)

TOPICS = (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE)
AT_ONCE = 500
GATHER_S = 0.05
FETCH_WAIT_MS = 50
CHECK_S = 6.0
LOOK_S = 15.0
"""Interval of the checks for Kueue and for the kinds that the API server serves."""
KINDS_S = 60.0
"""Interval at which kinds that the API server does not serve are looked up again."""
RETRY_S, RETRY_MAX_S = 0.5, 5.0


class JobQueue:
    """Runs the queue during one leader term; ``replica`` is the bridge's name in Events.

    ``namespace`` has the ConfigMap with the kinds that users added.
    """

    def __init__(self, cluster: Cluster, clock: Clock, replica: str, namespace: str) -> None:
        self._cluster, self._clock, self._namespace = cluster, clock, namespace
        self._known = Known()
        self._source = Source(self._known)
        self._kinds: tuple[Kind, ...] = (JOB,)
        self._looked_s, self._rows, self._row_trouble = -KINDS_S, list[Row](), ""
        self._actuator = Actuator(self._source, self._answer, clock)
        self._quotas = Quotas(clock)
        self._notices, self._replica = Notices(self._source, clock), replica
        self._source.refused = self._notices.refused
        self._statuses = Statuses(self._source, self._actuator, lambda: self._quotas.offered, clock)
        self._served: dict[str, Resource] = {}
        self._sender = Sender(cluster, client_id="slacktide-bridge-queue", timeout_s=3.0)
        self._connecting = asyncio.Lock()
        self._read_trouble, self._write_trouble, self._kind_trouble = (
            "its topics have not been read yet",
            "",
            "the API server has not answered yet",
        )
        self._rival: str | None = None
        """How Kueue was detected; "": not present; None: not checked yet."""

    @property
    def trouble(self) -> str:
        """Return why the queue does not publish or act; "" if it does."""
        shadow = (
            f"Kueue admits workloads here, so this queue starts and stops nothing: {self._rival}" if self._rival else ""
        )
        troubles = (self._read_trouble, self._write_trouble, self._kind_trouble, self._source.trouble, shadow,
                    self._actuator.trouble, self._row_trouble)  # fmt: skip
        return next((why for why in troubles if why), "")

    @property
    def works(self) -> list[Work]:
        """Return the objects that the queue starts and stops."""
        return [work for _, work in self._source.works.values()]

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        try:
            await until_one_ends(
                self._read(),
                self._write(),
                self._follow(api),
                self._actuator.run(api, lambda: self._acts),
                self._notices.run(api, lambda: self._acts, replica=self._replica),
                self._statuses.run(api, lambda: self._served if self._acts else {}),
            )
        finally:
            metrics.SHADOW.set(0)
            metrics.WORKS.set(0)
            await self._sender.close()

    @property
    def _acts(self) -> bool:
        return not self._read_trouble and self._source.listed and not self._kind_trouble and self._rival == ""

    async def _follow(self, api: ApiServer) -> None:
        self._served = {}
        following: list[asyncio.Task[None]] = []
        try:
            while True:
                try:
                    now, plurals = await served(api)
                    self._kind_trouble = "" if now else f"the API server does not serve {GROUP}"
                    self._look(await kueue(api, workloads_of(plurals), self._clock.wall_ms))
                    if self._rival and now:
                        await self._quotas.write(api, now["ClusterQueue"])
                    kinds = await self._look_up(api)
                    if (now, kinds) != (self._served, self._kinds) or not following:
                        self._served, self._kinds = now, kinds
                        await ended(*following)
                        works = [until_one_ends(*self._source.follows(api, now, kinds))] if now else []
                        following = [asyncio.create_task(work) for work in works]
                except ApiError as exc:
                    self._kind_trouble = str(exc)
                if not following:
                    await asyncio.sleep(LOOK_S)
                    continue
                done, _ = await asyncio.wait(following, timeout=LOOK_S)
                for task in done:
                    task.result()
        finally:
            await ended(*following)

    async def _look_up(self, api: ApiServer) -> tuple[Kind, ...]:
        """Return Jobs and the kinds that the API server serves, looked up each minute. Raises ApiError."""
        if mono_s(self._clock) < self._looked_s + KINDS_S:
            return self._kinds
        try:
            rows, self._row_trouble = await read_rows(api, self._namespace), ""
        except (ConfigError, ApiError) as exc:
            rows, self._row_trouble = self._rows, f"{exc}; the last valid rows of kinds stay in force"
            log.warning("the rows of kinds cannot be used", extra={"why": str(exc)})
        found = (JOB, *await served_kinds(api, rows))
        same = rows == self._rows and [one.resource for one in found] == [one.resource for one in self._kinds]
        self._looked_s, self._rows = mono_s(self._clock), rows
        return self._kinds if same else found

    def _look(self, rival: str) -> None:
        if rival != self._rival:
            if rival:
                log.warning("Kueue admits workloads on this cluster: this queue only decides", extra={"why": rival})
            else:
                log.info("this queue starts and stops jobs: Kueue does not admit workloads on this cluster")
            self._rival = rival
            for uid in self._source.works:
                self._actuator.changed(uid)
        metrics.SHADOW.set(bool(rival))
        metrics.WORKS.set(len(self._source.works))

    async def _read(self) -> None:
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            try:
                async with Tail(self._cluster, FETCH_WAIT_MS) as tail:
                    found = await tail.read({(topic.name, 0): WHOLE for topic in TOPICS})
                    self._known.begin()
                    self._actuator.states.clear()
                    self._take(found.records)
                    if self._source.listed:
                        self._known.complete()
                    self._read_trouble = ""
                    backoff.reset()
                    checked_ns = self._clock.mono_ns()
                    while True:
                        self._take(await tail.more())
                        if self._clock.mono_ns() - checked_ns > CHECK_S * 1e9:
                            await tail.check()
                            checked_ns = self._clock.mono_ns()
            except LogError as exc:
                self._read_trouble = str(exc)
                await asyncio.sleep(backoff.next_s())

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.topic == QUEUE_STATE.name:
                self._state(record)
            else:
                self._known.read(record)
                self._quotas.read(record)

    def _state(self, record: Record) -> None:
        uid, states = text_of(record.key or b""), self._actuator.states
        if record.value is None:
            states.pop(uid, None)
        else:
            try:
                one = decode(record.value, QueueState)
            except BadMessageError:
                return  # the decider writes it again
            known = states.get(one.uid)
            if known is not None and (known.epoch, known.turn) > (one.epoch, one.turn):
                return
            states[one.uid] = one
            if self._acts:  # already reported
                self._notices.put(one)
        self._actuator.changed(uid)

    async def _write(self) -> None:
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            pending = [] if self._read_trouble else self._known.pending(AT_ONCE)
            if not pending:
                self._write_trouble = ""
                await asyncio.sleep(GATHER_S)
                continue
            try:
                outs = [self._out(place.topic, place.key, value) for place, value in pending]
                await self._connected()
                results = await self._sender.send_each(outs)
                self._write_trouble = ""
                backoff.reset()
            except LogError as exc:
                self._write_trouble = str(exc)
                await asyncio.sleep(backoff.next_s())
                continue
            for (place, value), result in zip(pending, results, strict=True):
                if isinstance(result, Refused):
                    log.warning("cannot publish a record of the queue", extra={"why": result.why})
                    self._known.give_up([place])
                else:
                    self._known.wrote(place, value, result.offset)
                    metrics.RECORDS.labels(place.topic).inc()

    async def _answer(self, outcomes: Sequence[QueueOutcome]) -> None:
        await self._connected()
        results = await self._sender.send_each(
            [self._out(QUEUE_OUTCOME.name, one.uid, encode(one)) for one in outcomes]
        )
        for result in results:
            if isinstance(result, Refused):
                log.warning("cannot publish an outcome", extra={"why": result.why})

    async def _connected(self) -> None:
        async with self._connecting:
            if self._sender.connected:
                return
            await self._sender.connect([QUEUE_SPEC.name, QUEUE_WORKLOAD.name, QUEUE_OUTCOME.name])

    def _out(self, topic: str, key: str, value: bytes | None) -> Out:
        return of_queue(topic, key, value, source=SOURCE, event_ms=self._clock.wall_ms())
