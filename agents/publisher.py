"""Sends records to Kafka, so that no caller waits for it, and keeps policy and inventory published."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import islice
from typing import Literal

import msgspec

from slacktide.agents.files import Watched
from slacktide.agents.letters import Letters
from slacktide.schemas.backoff import Backoff, Reasons
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.health import Health
from slacktide.schemas.inventory import NodeFacts, NodeInventory, revision_of
from slacktide.schemas.kubernetes import Described
from slacktide.schemas.policy import KEY, InForce, NodeSource, Parsed, Policy, RefusedFile, refused_file
from slacktide.schemas.topics import DEAD_LETTER, INVENTORY, POLICY
from slacktide.streams.kafka import Sender, read_topic
from slacktide.streams.records import Out, Record, dead_letter, event, place_of
from slacktide.streams.tasks import ended, given_up

log = logging.getLogger(__name__)

WAITING_MAX = 10_000
BATCH_MAX = 200
GATHER_S, LAST_S = 0.2, 3.0
RETRY_S, RETRY_MAX_S = 1.0, 5.0


class Outbox:
    """Records of one source for these topics.

    ``gather_s``: the least time between two batches. ``dropped`` is called for each dropped record; the log has the
    first.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        topics: tuple[str, ...],
        now_ms: Callable[[], int],
        *,
        source: str,
        acks: Literal["all", "1"] = "all",
        gather_s: float = GATHER_S,
        dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self.away = ""
        """Why Kafka does not have all records; "": it has."""
        self._sender = Sender(bootstrap, client_id=f"slacktide-{source}", acks=acks)
        self._topics, self._source, self._now_ms, self._dropped = topics, source, now_ms, dropped
        self._waiting: deque[Out] = deque()
        self._letters = Letters()
        self._some = asyncio.Event()
        self._full, self._gather_s = False, gather_s

    def put(self, out: Out) -> None:
        """Queue a record."""
        self._waiting.append(out)
        self._some.set()
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._dropped()
            if not self._full:
                log.warning("too many records wait for Kafka: dropping the oldest", extra={"for": self._source})
            self._full = True

    def to_dead_letter(self, record: Record, reason: str) -> None:
        """Queue a dead letter for an invalid record."""
        self._letters.add(dead_letter(record, reader=self._source, reason=reason, now_ms=self._now_ms()))
        self._some.set()

    async def run(self) -> None:
        """Send until cancelled."""
        backoff, reasons = Backoff(RETRY_S, RETRY_MAX_S), Reasons()
        while True:
            await self._some.wait()
            try:
                self._some.clear()
                await self._send()
                self.away, self._full = "", False
                backoff.reset()
                reasons.reset()
                await asyncio.sleep(self._gather_s)
            except LogError as exc:
                if reasons.is_new(str(exc)):
                    log.warning("Kafka is unreachable", extra={"for": self._source, "why": str(exc)})
                self.away = str(exc)
                self._some.set()
                await asyncio.sleep(backoff.next_s())

    async def close(self) -> None:
        """Send the rest at shutdown, and disconnect."""
        try:
            async with asyncio.timeout(LAST_S):
                await self._send()
        except (LogError, TimeoutError) as exc:
            log.warning("not all records are published", extra={"records": len(self._waiting), "why": str(exc)})
        finally:
            await self._sender.close()

    async def _send(self) -> None:
        while True:
            some, letters = list(islice(self._waiting, BATCH_MAX)), self._letters.some()
            if not some and not letters:
                return
            if not self._sender.connected:
                await self._sender.connect(self._topics)
            await self._sender.send([*some, *letters])
            self._letters.sent(letters)
            for one in some:
                if self._waiting and self._waiting[0] is one:  # unless it was dropped meanwhile
                    self._waiting.popleft()


SOURCE = "publisher"
NOTHING_YET = "nothing has been published yet"
REPUBLISH_S = 60.0
LOOK_S = 1.0
AT_ONCE = 500
"""Most records in flight, so that each batch is acknowledged in time."""
TOPICS = (POLICY.name, INVENTORY.name, DEAD_LETTER.name)

_NOTHING = object()
_Latest = dict[tuple[str, str], Policy | NodeInventory | None]


class Publisher:
    """Publishes policy and nodes, unless the topic's policy is of a writer with a higher epoch.

    ``ensure_topics`` creates missing topics, for a broker in memory. It may raise LogError.
    ``writer_epoch`` is 0 without Kubernetes, since there is one writer and no election. ``now_ms`` is UTC epoch time.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        *,
        ensure_topics: Callable[[], Awaitable[object]],
        now_ms: Callable[[], int],
        node_source: NodeSource,
        writer_epoch: int = 0,
        source: str = SOURCE,
    ) -> None:
        self.away = NOTHING_YET
        """Why Kafka lacks the newest records; "": it has them."""
        self._bootstrap = bootstrap
        self._installation = secrets.token_hex(8)
        self._sender = Sender(bootstrap, client_id=f"slacktide-{source}", acks="all")
        self._ensure_topics, self._now_ms, self._node_source = ensure_topics, now_ms, node_source
        self._writer_epoch, self._source = writer_epoch, source
        self._latest: _Latest = {}
        self.outranked = ""
        """Which other writer readers follow, and what to do: they would reject what this one publishes; "": none."""
        self._refused: RefusedFile | None = None
        """The operator's invalid file as it was published, also by an earlier writer."""
        self._changed: set[tuple[str, str]] = set()
        self._letters = Letters()
        self._reasons = Reasons()
        self._stirred = asyncio.Event()

    def to_dead_letter(self, record: Record, reason: str) -> None:
        """Publish a dead letter for an unusable record."""
        self._letters.add(dead_letter(record, reader=self._source, reason=reason, now_ms=self._now_ms()))

    def policy(self, policy: Policy) -> None:
        """Publish this policy."""
        ours = msgspec.structs.replace(policy, writer_epoch=self._writer_epoch, node_source=self._node_source)
        self._set(POLICY.name, KEY, ours)

    def inventory(self, facts: NodeFacts) -> None:
        """Publish this node."""
        revision = revision_of(facts)
        inventory = NodeInventory(node=facts.name, revision=revision, facts=facts, writer_epoch=self._writer_epoch)
        self._set(INVENTORY.name, facts.name, inventory)

    def removed(self, node: str) -> None:
        """Publish the node's removal."""
        self._set(INVENTORY.name, node, None)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep Kafka up to date until ``stop`` is set."""
        try:
            quiet_s = 0.0
            while not stop.is_set():
                try:
                    quiet_s = await self._look(quiet_s)
                except LogError as exc:
                    if self._reasons.is_new(str(exc)):
                        log.warning("Kafka is unreachable", extra={"for": self._source, "why": str(exc)})
                    self.away = str(exc)
                self._stirred.clear()
                waiting = {asyncio.ensure_future(event.wait()) for event in (stop, self._stirred)}
                await asyncio.wait(waiting, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                given_up(*waiting)
        finally:
            await self._sender.close()

    async def _look(self, quiet_s: float) -> float:
        """Publish what is due. Return the time since everything was republished."""
        if self._sender.connected:
            await self._sender.check(TOPICS)
        if not self._sender.connected:
            await self._connect()
            quiet_s = REPUBLISH_S
        whole = quiet_s >= REPUBLISH_S
        if whole or (POLICY.name, KEY) in self._changed:
            await self._read_policy()
        if self.outranked:
            self._changed.clear()
        else:
            await self._publish(set(self._latest) if whole else set(self._changed))
        if letters := self._letters.some():
            await self._sender.send(letters)
            self._letters.sent(letters)
        if self.away and self._latest:
            if not self.outranked:
                log.info("policy and inventory are published")
            self.away = ""
            self._reasons.reset()
        return 0.0 if whole else quiet_s + LOOK_S

    async def _connect(self) -> None:
        try:
            await self._sender.connect(TOPICS)
        except LogError:
            await self._ensure_topics()
            await self._sender.connect(TOPICS)

    async def _read_policy(self) -> None:
        """Adopt the topic's installation, and find out whether its writer has a higher epoch."""
        found = (await read_policy(self._bootstrap)).policy
        self._installation = found.installation or self._installation
        self._refused = self._refused or found.refused
        before, self.outranked = self.outranked, ""
        if found.writer_epoch > self._writer_epoch:
            self.outranked = (
                f"policy and inventory are another writer's, with writer_epoch {found.writer_epoch} against "
                f"{self._writer_epoch}: this one publishes neither; stop one of them"
            )
        if self.outranked != before:
            log.warning("%s", self.outranked or "no other writer publishes policy and inventory any more")
            self._changed |= set(self._latest)

    async def _publish(self, which: set[tuple[str, str]]) -> None:
        keys = sorted(which)
        for first in range(0, len(keys), AT_ONCE):
            batch = {key: self._latest[key] for key in keys[first : first + AT_ONCE]}
            await self._sender.send([self._out(topic, key, body) for (topic, key), body in batch.items()])
            # Changes made meanwhile are still to be sent.
            sent = {key for key, body in batch.items() if self._latest[key] is body}
            self._changed -= sent
            for key in sent:
                if self._latest[key] is None:
                    del self._latest[key]

    def _set(self, topic: str, key: str, body: Policy | NodeInventory | None) -> None:
        if self._latest.get((topic, key), _NOTHING) != body:
            self._latest[topic, key] = body
            self._changed.add((topic, key))
            self._stirred.set()

    def _out(self, topic: str, key: str, body: Policy | NodeInventory | None) -> Out:
        now_ms = self._now_ms()
        if isinstance(body, Policy):
            # Add since when the file has these errors.
            before, self._refused = self._refused, body.refused
            if body.refused is not None:
                same = before is not None and before.findings == body.refused.findings
                since_ms = before.since_ms if before is not None and same else now_ms
                self._refused = msgspec.structs.replace(body.refused, since_ms=since_ms)
            body = msgspec.structs.replace(body, refused=self._refused)
        if body is not None:
            body = msgspec.structs.replace(body, installation=self._installation, published_ms=now_ms)
        value = None if body is None else encode(body)
        return event(topic, key, value, source=self._source, event_id=f"{key}/{now_ms}", event_ms=now_ms)


async def read_policy(bootstrap: Cluster) -> InForce:
    """Read the policy in force from the topic. Unreadable records are skipped.

    Raises:
        LogError: the broker cannot be reached, or lacks the topic.
    """
    policies = InForce()
    async with aclosing(read_topic(bootstrap, POLICY.name)) as records:
        async for record in records:
            with suppress(BadMessageError):
                policies.take(record.key, record.value, place_of(record))
    return policies


async def publish_files(
    publisher: Publisher, *, policy: Watched[Parsed], inventory: Watched[Described], stop: asyncio.Event, health: Health
) -> None:
    """Publish what two watched files hold, until ``stop`` is set."""
    publishing = asyncio.create_task(publisher.run(stop))
    _publish_policy(publisher, policy)
    publisher.inventory(inventory.value.facts)
    try:
        while not stop.is_set() and not publishing.done():
            await asyncio.wait({publishing}, timeout=LOOK_S)
            if policy.changed and await asyncio.to_thread(policy.poll):
                _publish_policy(publisher, policy)
            if inventory.changed and await asyncio.to_thread(inventory.poll):
                publisher.inventory(inventory.value.facts)
            health.not_ready = publisher.away
            health.not_fresh = policy.refused or inventory.refused or publisher.outranked
        await publishing
    finally:
        await ended(publishing)  # it disconnects


def _publish_policy(publisher: Publisher, policy: Watched[Parsed]) -> None:
    if policy.refused:
        log.error("%s", policy.refused)
        # At a start the last valid content may not be in Kafka yet.
        publisher.policy(msgspec.structs.replace(policy.value.policy, refused=refused_file(policy.findings)))
        return
    for note in policy.value.notes:
        log.warning("%s", note)
    publisher.policy(policy.value.policy)
