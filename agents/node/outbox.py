"""Records that a node agent publishes, and samples that wait in bounded memory; large ones are sent reduced."""

import asyncio
from bisect import insort
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from slacktide.agents.letters import size_of
from slacktide.schemas.bounds import PODS_MAX
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import RecordRefusedError
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.headers import headers
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Missing, NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.service import ServiceMinute
from slacktide.schemas.topics import BACKFILL, FORECAST, OUTCOME, SAMPLE, SERVICE_MINUTE, ZONES, Topic
from slacktide.schemas.zones import NodeZones
from slacktide.streams.kafka import COMPRESSED_BYTES_MAX, PLAIN_BYTES_MAX, Placed, Sender
from slacktide.streams.records import Out, event


def of_sample(sample: NodeSample, pods: Sequence[Pod], topic: Topic = SAMPLE) -> Out:
    """Return a sample for the stream workers; ``pods``: the list that it refers to."""
    return _numbered(topic, sample, encoded(sample, pods))


def of_history(sample: NodeSample) -> Out:
    """Return a backfilled sample, which only fills windows. It names its pods, since workers may not know its list."""
    return of_sample(sample, (), BACKFILL)


def of_zones(zones: NodeZones) -> Out:
    """Return the node's NUMA zones, for the scheduler."""
    return _numbered(ZONES, zones, encode(zones))


def of_forecast(forecast: NodeForecast) -> Out:
    """Return the node's models, for the stream workers and the node's next agent."""
    return _numbered(FORECAST, forecast, encode(forecast))


def of_minute(minute: ServiceMinute) -> Out:
    """Return a minute of a service, for the stream workers. Its key is the service; its body names node and service."""
    source, event_id = f"agent/{minute.node}", f"{minute.observed_ms}/{minute.service}"
    return event(
        SERVICE_MINUTE.name,
        minute.service,
        encode(minute),
        source=source,
        event_id=event_id,
        event_ms=minute.observed_ms,
    )


def of_outcome(outcome: NodeOutcome, topic: Topic = OUTCOME) -> Out:
    """Return an outcome, in the trace of the sample that led to it."""
    which = f"{outcome.boot_id}/{outcome.seq}"
    event_id = f"{which}/{outcome.command_id}/{outcome.result}/{outcome.acted_ms}"
    return _out(topic, outcome.node, encode(outcome), event_id, outcome.acted_ms, f"{outcome.node}/{which}")


def _numbered(topic: Topic, message: NodeSample | NodeZones | NodeForecast, body: bytes) -> Out:
    which = f"{message.boot_id}/{message.seq}"
    return _out(topic, message.node, body, which, message.observed_ms, f"{message.node}/{which}")


def _out(topic: Topic, node: str, body: bytes, event_id: str, event_ms: int, trace: str) -> Out:
    source = f"agent/{node}"
    head = headers(kind=topic.name, source=source, subject=node, event_id=event_id, event_ms=event_ms, trace=trace)
    return Out(topic=topic.name, key=node.encode(), value=body, headers=head)


BACKLOG_SAMPLES_MAX = 600
BACKLOG_BYTES_MAX = 4 * 1024 * 1024
"""About ten minutes of samples, less with very many pods. The oldest are dropped first."""


class Offered(NamedTuple):
    """A sample with the facts and pods that it refers to."""

    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]

    @property
    def carries(self) -> bool:
        """Whether it carries facts or pods."""
        return self.sample.facts is not None or self.sample.pods is not None


class Newest:
    """Holds the newest unsent sample. It also carries the pods and facts of an unsent older one."""

    def __init__(self) -> None:
        self._sample: Offered | None = None
        self._there = asyncio.Event()
        self._owed = False
        """Whether Kafka may lack facts or pods that the next sample refers to."""

    def put(self, sample: Offered) -> Offered | None:
        """Hold this sample. Return the older one that it replaces."""
        before, self._sample = self._sample, sample
        self._owed = self._owed or (before is not None and before.carries)
        self._there.set()
        return before

    def put_back(self, sample: Offered) -> Offered | None:
        """Put back an unsent sample. Return it if a newer one is held."""
        if self._sample is None:
            return self.put(sample)
        self._owed = self._owed or sample.carries
        return sample

    def owe_keyframe(self) -> None:
        """Make the next sample a keyframe, since readers may lack facts or pods."""
        self._owed = True

    async def wait(self) -> None:
        """Wait until there is a sample."""
        await self._there.wait()

    def take(self) -> Offered:
        """Take the sample out, as a keyframe if one is owed."""
        sample, self._sample = self._sample, None
        assert sample is not None, "nothing was put"
        owed, self._owed = self._owed, False
        self._there.clear()
        if not owed:
            return sample
        return sample._replace(sample=replace(sample.sample, facts=sample.facts, pods=list(sample.pods)))


class Backlog:
    """Encoded samples that were not sent while they were the newest, by seq. The oldest are dropped if full."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Out]] = []
        self._bytes = 0
        self._there = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: NodeSample) -> int:
        """Add a sample. Return how many older ones are dropped."""
        out = of_history(sample)
        insort(self._waiting, (sample.seq, out), key=itemgetter(0))  # a failed sample is added after its successors
        self._bytes += size_of(out)
        given_up = 0
        while len(self._waiting) > BACKLOG_SAMPLES_MAX or self._bytes > BACKLOG_BYTES_MAX:
            self._bytes -= size_of(self._waiting.pop(0)[1])
            given_up += 1
        self._there.set()
        return given_up

    async def wait(self) -> None:
        """Wait until there is a sample."""
        await self._there.wait()

    def some(self, count: int) -> list[Out]:
        """Return the oldest ``count`` records."""
        return [out for _, out in self._waiting[:count]]

    def sent(self, outs: list[Out]) -> None:
        """Remove sent records. Some may have been dropped meanwhile."""
        for out in outs:
            if self._waiting and self._waiting[0][1] is out:
                self._bytes -= size_of(self._waiting.pop(0)[1])
        if not self._waiting:
            self._there.clear()


ROOM_BYTES = 1_024
"""Part of a record's size limit for key, headers and framing."""


class SampleSender:
    """Sends one node's samples in order. It connects for compressed records when the first one is due."""

    def __init__(self, bootstrap: Cluster, *, client_id: str, sign: Callable[[Out], Out]) -> None:
        self._sign = sign
        self._plain = Sender(bootstrap, client_id=client_id, acks=SAMPLE.acks)
        self._compressed = Sender(bootstrap, client_id=client_id, acks=SAMPLE.acks, compress=True)
        self.too_large = ""
        """Why the last pod list could not be sent; "": it was sent."""

    @property
    def connected(self) -> bool:
        """Whether ``send`` may be called."""
        return self._plain.connected

    async def connect(self) -> None:
        """Connect again. Raises LogError if Kafka is unavailable, or has no topic for samples."""
        await self._plain.connect([SAMPLE.name])

    async def send(self, sample: NodeSample, pods: Sequence[Pod]) -> Placed:
        """Send one sample and wait for its acknowledgement. Drop pods and facts if it is too large.

        Raises:
            RecordRefusedError: Kafka refuses it in every form.
            LogError: it was not acknowledged in time.
        """
        why = ""
        forms: list[tuple[NodeSample, Sequence[Pod]]] = [(sample, pods)]
        if sample.pods is not None or sample.facts is not None or _count(sample, pods) > PODS_MAX:
            # A worker answers `skipped` to a sample without pods and facts, so that the node decides.
            forms.append((replace(sample, pods=None, facts=None, pod_use=sample.pod_use[:PODS_MAX]), ()))
        for form, listed in forms:
            named = replace(form, missing=[*form.missing, Missing(what="pods", why=why)]) if why else form
            try:
                placed = await self._in_some_coding(named, listed)
            except RecordRefusedError as exc:
                why = str(exc)
            else:
                if why or sample.pods is not None:
                    self.too_large = why and f"{why}: the sample is sent without its pods, and workers answer `skipped`"
                return placed
        self.too_large = why
        raise RecordRefusedError(why)

    async def close(self) -> None:
        """Disconnect."""
        await self._plain.close()
        await self._compressed.close()

    async def _in_some_coding(self, sample: NodeSample, pods: Sequence[Pod]) -> Placed:
        if (count := _count(sample, pods)) > PODS_MAX:
            raise RecordRefusedError(f"sample of {count:,} pods exceeds {PODS_MAX:,}")
        out = self._sign(of_sample(sample, pods))
        size, refused = size_of(out), ""
        for sender, limit in ((self._plain, PLAIN_BYTES_MAX), (self._compressed, COMPRESSED_BYTES_MAX)):
            if size + ROOM_BYTES > limit:
                refused = f"sample of {size:,} bytes exceeds {limit:,}"
                continue
            try:
                if not sender.connected:
                    await sender.connect([SAMPLE.name])
                [placed] = await sender.send([out])
            except RecordRefusedError as exc:
                refused = str(exc)
            else:
                return placed
        raise RecordRefusedError(refused)


def _count(sample: NodeSample, pods: Sequence[Pod]) -> int:
    return max(len(sample.pod_use), len(pods))
