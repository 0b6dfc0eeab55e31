"""Folds events of Jobs into statuses, and minutes and latencies of services into profiles.

One membership of one consumer group spreads the partitions of both over all workers. A state is published before its
offset is committed. After a rebalance the new owner reads the states, then the events from the committed offset. It may
fold an event twice, and never misses one. What follows from a state for others, such as a service's slope, is published
before the state, so that the successor of a killed worker publishes it again.

Kinds are added by upgrades. One whose topics do not exist yet is left out, and begins when they do.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from prometheus_client import Gauge

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import (
    JOB_POD,
    JOB_STATUS,
    POLICY,
    SERVICE_MINUTE,
    SERVICE_PROFILE,
    SERVICE_SLI,
    SERVICE_SLOPE,
)
from slacktide.streams.engine import metrics
from slacktide.streams.engine.lifetime import Lifetime
from slacktide.streams.engine.quarantine import Marked
from slacktide.streams.engine.transport import Consumer, Turn
from slacktide.streams.jobs.folder import SOURCE
from slacktide.streams.jobs.folder import Folder as JobFolder
from slacktide.streams.kafka import WHOLE, Refused, Sender, Tail, absence, last_of_each_key, partition_counts
from slacktide.streams.learning.folder import Folder as ServiceFolder
from slacktide.streams.proofs import Proofs
from slacktide.streams.records import Out, Place, Record, dead_letter_of_refused

log = logging.getLogger(__name__)

FETCH_WAIT_MS = 3_000
"""Kafka answers as soon as there is an event. The embedded broker looks at half of this time."""
BEATS = 3
"""As Kafka advises: nobody waits for the status of a Job for less than a few seconds."""
PUBLISH_S = 1.0
"""A Job's status is published at most once in this interval."""
LOOK_S = 1.0
TOPICS_LOOK_S = 30.0
"""How often it is checked whether the topics of a kind that was left out exist by now."""


class Folder(Protocol):
    """Folds one partition of a kind."""

    def __len__(self) -> int:
        """Return how many keys it knows."""

    def take(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Fold records in order; return dead letters for invalid ones."""

    def due(self, now_ms: int) -> list[Out]:
        """Return what to publish now."""

    def cursor(self, position: int) -> int:
        """Return the offset from which to read events again, after all that was due is published."""

    def overtaken(self, states: Iterable[Record]) -> None:
        """Publish again what a former worker of the partition overwrote late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fold."""

    source: str
    """Topic of events."""
    beside: str = ""
    """Topic of statistics that the same folder takes, and that a worker's death may lose; "": none."""
    state: str
    """Compacted topic with the state of each key, in the same partition."""
    further: Sequence[str] = ()
    """Topics that are written before the state."""
    optional: bool = False
    """Whether others are folded without its topics."""
    start: Callable[[int, Iterable[Record], Proofs, Callable[[str], bool]], Folder]
    """Makes the folder of a partition from its states. It may check proofs, and whether a key is of the partition."""
    known: Gauge
    count: Callable[[Any, int], None]
    """Counts what a folder took: records."""

    @property
    def sources(self) -> list[str]:
        """Return the topics that it reads."""
        return [self.source, self.beside] if self.beside else [self.source]

    @property
    def topics(self) -> list[str]:
        """Return all its topics."""
        return [*self.sources, *self.further, self.state]

    def trouble(self, counts: Mapping[str, int]) -> str:
        """Return why it cannot be folded with these partitions of topics; "": it can."""
        if lack := absence({topic: counts[topic] for topic in self.topics}):
            return lack
        other = next((one for one in self.sources if counts[one] != counts[self.state]), "")
        return other and f"{other} and {self.state} differ in partitions: slacktide topics plan"


def _count_events(_: Folder, records: int) -> None:
    metrics.JOB_EVENTS.inc(records)


def _count_minutes(folder: ServiceFolder, _: int) -> None:
    for verdict, count in folder.verdicts.items():
        if verdict == "folded":
            metrics.SERVICE_MINUTES.inc(count)
        else:
            metrics.SERVICE_MINUTES_IGNORED.labels(verdict).inc(count)
    folder.verdicts.clear()


KINDS = (
    Kind(
        source=JOB_POD.name,
        state=JOB_STATUS.name,
        start=lambda partition, statuses, *_: JobFolder(partition, statuses),
        known=metrics.JOBS,
        count=_count_events,
    ),
    Kind(
        source=SERVICE_MINUTE.name,
        beside=SERVICE_SLI.name,
        state=SERVICE_PROFILE.name,
        further=(SERVICE_SLOPE.name,),
        optional=True,
        start=ServiceFolder,
        known=metrics.SERVICES,
        count=_count_minutes,
    ),
)
OF_SOURCE = {topic: kind for kind in KINDS for topic in kind.sources}
FURTHER = frozenset(topic for kind in KINDS for topic in kind.further)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSettings:
    """Settings of a worker that folds."""

    bootstrap: Cluster
    session_timeout_ms: int = 6_000
    """The group reassigns the partitions of a worker after this time without a heartbeat."""


@dataclass(slots=True)
class _Held:
    """The partitions of one kind."""

    folders: dict[Place, Folder] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    look_s: float | None = None
    """When to look for states that the previous owner wrote late; monotonic."""


@dataclass(slots=True)
class _Share:
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when ``places`` is known."""
    places: frozenset[Place] = frozenset()
    held: dict[str, _Held] = field(default_factory=lambda: {kind.source: _Held() for kind in KINDS})
    """By source: no kind waits until the states of another are read."""
    folded: dict[Place, int] = field(default_factory=dict)
    """Next offset by partition."""
    published: dict[Place, int] = field(default_factory=dict)
    """Offset by partition from which the next owner must read."""

    @property
    def folders(self) -> dict[Place, Folder]:
        """Return all folders."""
        return {place: folder for held in self.held.values() for place, folder in held.folders.items()}


class Folding(Lifetime):
    """One membership of the group of workers that fold."""

    def __init__(self, settings: FoldSettings, now_ms: Callable[[], int], proofs: Proofs) -> None:
        """Begin; ``connect`` follows. ``proofs``: with the last policy in force, also from before an outage."""
        super().__init__()
        self._settings, self._now_ms, self._proofs = settings, now_ms, proofs
        self._policies = Tail(settings.bootstrap, FETCH_WAIT_MS)
        self.kinds: list[Kind] = []
        """Without those that were left out."""
        self._share = _Share()
        self._dead_letters: list[Out] = []
        self._sender = Sender(settings.bootstrap, client_id="slacktide-folds", acks="all")

    async def connect(self) -> None:
        """Connect, and read the policy. Raises LogError if Kafka is unavailable, or topics are not as they must be."""
        counts = await self._counts()
        if lack := absence({POLICY.name: counts[POLICY.name]}):
            raise LogError(lack)
        for kind in KINDS:
            why = kind.trouble(counts)
            if why and not kind.optional:
                raise LogError(why)
            if why:
                log.warning("%s is not folded yet", kind.source, extra={"why": why})
            else:
                self.kinds.append(kind)
        await self._policies.connect()
        self._take_policies((await self._policies.read({(POLICY.name, 0): WHOLE})).records)
        await self._sender.connect([topic for kind in self.kinds for topic in (*kind.further, kind.state)])

    async def _counts(self) -> dict[str, int]:
        topics = [topic for kind in KINDS for topic in kind.topics]
        return await partition_counts(self._settings.bootstrap, [POLICY.name, *topics])

    def _take_policies(self, records: Iterable[Record]) -> None:
        for record in records:
            self._proofs.policy(record)

    @property
    def sources(self) -> list[str]:
        """Return the topics to fold."""
        return [topic for kind in self.kinds for topic in kind.sources]

    async def read_policy(self) -> None:
        """Follow the policy until cancelled. Raises LogError if Kafka is unavailable."""
        while True:
            self._take_policies(await self._policies.more(LOOK_S))

    async def wait_for_topics(self) -> None:
        """Wait until a kind that was left out can be folded; none was: return.

        Raises LogError then, so that it is folded; or if Kafka is unavailable.
        """
        left_out = [kind for kind in KINDS if kind not in self.kinds]
        while left_out:
            await asyncio.sleep(TOPICS_LOOK_S)
            counts = await self._counts()
            if added := [kind.source for kind in left_out if not kind.trouble(counts)]:
                raise LogError(f"{', '.join(added)} can be folded now, from the next connection on")

    async def close(self) -> None:
        """Disconnect."""
        self.forget_failure()
        for kind in KINDS:
            kind.known.set(0)
        await self._policies.close()
        await self._sender.close()

    async def fold(self, turn: Turn, member: Consumer) -> None:
        """Fold a turn of events of one kind. Raises LogError if Kafka is unavailable."""
        kind = OF_SOURCE[next(iter(turn)).topic]
        share = self._share
        folders = await self._ready(kind, share, member)
        if share is self._share:
            for place, taken in turn.items():
                folder = folders.get(Place(kind.source, place.partition))
                if folder is None:  # of ``beside``, while workers of two releases share out the topics
                    continue
                self._dead_letters += folder.take(taken.records(*place), self._now_ms())
                share.folded[place] = taken.offsets[-1] + 1
                kind.count(folder, len(taken))
        member.answered(turn, {})

    async def publish(self, member: Consumer) -> None:
        """Publish the states that changed, and let ``member`` commit. Raises LogError if Kafka is unavailable."""
        share = self._share
        now_ms, folders = self._now_ms(), share.folders
        outs = [out for folder in folders.values() for out in folder.due(now_ms)] + self._dead_letters
        self._dead_letters = []
        cursors = {place: folders[place].cursor(at) if place in folders else at for place, at in share.folded.items()}
        for further in (True, False):
            await self._send([out for out in outs if (out.topic in FURTHER) is further], now_ms)
        if share is self._share:
            changed = {place: at for place, at in cursors.items() if share.published.get(place) != at}
            share.published |= changed
            if changed:
                member.answered({}, changed)
        for kind in KINDS:
            kind.known.set(sum(map(len, self._share.held[kind.source].folders.values())))

    async def look(self, member: Consumer) -> None:
        """Read the states of new partitions, and again after the time in which a previous owner may still write.

        So events seldom wait for states, nor those of one kind for turns of another. Raises LogError if Kafka is
        unavailable.
        """
        share = self._share
        for kind in self.kinds if share.known.is_set() else ():
            await self._ready(kind, share, member)
        for held in share.held.values():
            if held.look_s is not None and asyncio.get_running_loop().time() > held.look_s:
                held.look_s = None
                for place, records in (await self._states(held.folders)).items():
                    held.folders[place].overtaken(records)

    async def _send(self, outs: Sequence[Out], now_ms: int) -> None:
        for result in await self._sender.send_each(outs) if outs else ():
            if isinstance(result, Refused):
                letter = dead_letter_of_refused(result.out, writer=SOURCE, reason=result.why, now_ms=now_ms)
                self._dead_letters.append(letter)

    @property
    def positions(self) -> dict[Place, int]:
        """Return the offset from which the next owner must read, by place."""
        return self._share.published

    def marked(self, offsets: Mapping[Place, int]) -> Marked:
        """Return offsets to commit; events need no notes."""
        return {place: (offset, "") for place, offset in offsets.items()}

    def assigned(self, places: frozenset[Place], _: int) -> None:
        """Start at the committed offset, also for a partition held before."""
        self._share.places = places
        self._share.known.set()
        self._policies.again()  # a rebalance may follow the recreation of topics

    def revoked(self) -> None:
        """Drop the share: the next owner folds unpublished events again."""
        self._share = _Share()

    async def _ready(self, kind: Kind, share: _Share, member: Consumer) -> dict[Place, Folder]:
        """Return the folders of a kind, once the states of newly assigned partitions are read."""
        held = share.held[kind.source]
        async with held.reading:
            if held.folders:
                return held.folders
            try:
                async with asyncio.timeout(self._settings.session_timeout_ms / 1_000):
                    await share.known.wait()
            except TimeoutError as exc:
                raise LogError("the group did not name this worker's partitions in time") from exc
            found = await self._states(sorted(place for place in share.places if place.topic == kind.source))
            folders = {}
            for place, records in found.items():
                folders[place] = kind.start(place.partition, records, self._proofs, partial(_is_of, member, place))
                await asyncio.sleep(0)  # samples are answered in the same process
            held.folders = folders
            held.look_s = asyncio.get_running_loop().time() + self._settings.session_timeout_ms / 1_000
        return held.folders

    async def _states(self, places: Collection[Place]) -> dict[Place, list[Record]]:
        found: dict[Place, list[Record]] = {place: [] for place in places}
        if places:
            sources = {Place(OF_SOURCE[place.topic].state, place.partition): place for place in places}
            async with Tail(self._settings.bootstrap, FETCH_WAIT_MS) as tail:
                asked = {(place.topic, place.partition): WHOLE for place in sources}
                for record in last_of_each_key((await tail.read(asked)).records):
                    found[sources[record.place]].append(record)
        return found


def _is_of(member: Consumer, place: Place, key: str) -> bool:
    """Check whether a key is of a partition, by the present number of partitions."""
    return member.key_partition(place.topic, key.encode()) in (place.partition, None)
