"""Uses Kafka for the stack: creates topics, publishes the operator's files, reads first decisions."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from slacktide.agents.clock import SystemClock
from slacktide.agents.publisher import Publisher, publish_files
from slacktide.deploy.cli.machine import OperatorFiles
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.health import Health
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import NodeSource
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.decisions.cpu_list import cpu_ranges
from slacktide.streams.kafka import create_topics, read_topic

log = logging.getLogger(__name__)

RETRY_S, RETRY_MAX_S = 1.0, 5.0
DONE = frozenset({"applied", "dry-run"})


class LogSide:
    """The supervisor's access to one Kafka cluster."""

    def __init__(self, bootstrap: Cluster, node: str, node_source: NodeSource) -> None:
        self._bootstrap = bootstrap
        self._node_source = node_source
        self._node = node

    async def apply_topics(self) -> None:
        """Create missing topics; if Kafka is unavailable, the publisher does it later."""
        with contextlib.suppress(LogError):
            created = await create_topics(self._bootstrap)
            if created:
                log.info("topics created", extra={"topics": len(created)})

    async def publish(self, files: OperatorFiles, stop: asyncio.Event, health: Health) -> None:
        """Keep Kafka up to date with the files."""
        await self.apply_topics()

        async def ensured() -> None:
            await create_topics(self._bootstrap)

        publisher = Publisher(
            self._bootstrap, ensure_topics=ensured, now_ms=SystemClock().wall_ms, node_source=self._node_source
        )
        await publish_files(publisher, policy=files.policy, inventory=files.inventory, stop=stop, health=health)

    async def first_decisions(self, since_ms: int) -> AsyncGenerator[str, None]:
        """Yield lines about the node's first outcomes from ``since_ms`` on, then end."""
        first, backoff = FirstDecisions(since_ms), Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            try:
                reading = read_topic(self._bootstrap, OUTCOME.name, since_ms=since_ms, follow=True, key=self._node)
                async with aclosing(reading):
                    async for record in reading:
                        with contextlib.suppress(BadMessageError):
                            if line := first.line_of(decode(record.value, NodeOutcome)):
                                yield line
                        if first.complete:
                            return
            except LogError as exc:
                log.debug("outcomes cannot be read: %s", exc)
                await asyncio.sleep(backoff.next_s())


class FirstDecisions:
    """Finds the first outcome with a change, and the first one decided by the stream."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._acted = False
        self._streamed = False

    @property
    def complete(self) -> bool:
        """Return whether both first decisions were found."""
        return self._acted and self._streamed

    def line_of(self, outcome: NodeOutcome) -> str:
        """Return the line about an outcome of the limit; "": none."""
        if not outcome.about_limit:
            return ""
        acted = not self._acted and outcome.result in DONE and outcome.origin != "agent"
        streamed = not self._streamed and outcome.origin == "stream" and outcome.result in DONE | {"unchanged"}
        self._acted |= acted
        self._streamed |= streamed
        after = f"{max(0, outcome.acted_ms - self._started_ms) / 1000:.1f} s after the start"
        if acted:
            before, held = outcome.before, outcome.after
            change = f"{_limit(before)} would change"
            if outcome.result != "dry-run":
                cpus = before is not None and held is not None and before.be_cpuset != held.be_cpuset
                change = f"{_limit(before, cpus=cpus)} -> {_limit(held, cpus=cpus)}"
            return f"first {outcome.result} decision {after}, by the {outcome.origin}: {change} ({outcome.bound})"
        if streamed:
            held = outcome.after
            shown = _limit(held, cpus=not held or held.be_cfs_quota_us is None)
            return f"first decision by the stream {after}: limit unchanged: {shown} ({outcome.bound})"
        return ""


def _limit(limits: Limits | None, *, cpus: bool = False) -> str:
    """Return a limit in millicores, with the CPUs of a CPU set."""
    if limits is None:
        return "an unknown limit"
    quota = ""
    if limits.be_cfs_quota_us is not None:
        quota = f"{1000 * limits.be_cfs_quota_us // limits.be_cfs_period_us} millicores"
    if cpus and limits.be_cpuset:
        return f"{quota} on CPUs {cpu_ranges(limits.be_cpuset)}".lstrip().removeprefix("on ")
    return quota or "no limit"
