"""Reads the audit topic to its end, and formats its actions as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from slacktide.deploy.cli.suggestions import near
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import AUDIT
from slacktide.streams.audit.acts import Act, what
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.kafka import Tail, partition_counts
from slacktide.streams.records import Record

FETCH_WAIT_MS = 100
ALL = 1 << 60
"""No limit for the number of records."""


async def audit_records(
    bootstrap: Cluster, since_ms: int, until_ms: int, wanted: Callable[[Record], bool] | None = None
) -> list[Record]:
    """Read records in the order of broker time.

    Args:
        bootstrap: the Kafka cluster.
        since_ms: UTC epoch, inclusive.
        until_ms: UTC epoch, exclusive.
        wanted: selects records.

    Raises:
        LogError: the topic cannot be read to its end.
    """
    count = (await partition_counts(bootstrap, [AUDIT.name]))[AUDIT.name]
    if not count:
        raise LogError(
            f"{bootstrap}: topic {AUDIT.name} does not exist; create it: slacktide topics apply {options(bootstrap)}"
        )
    async with Tail(bootstrap, FETCH_WAIT_MS, most=ALL) as tail:
        read = await tail.read({(AUDIT.name, number): since_ms for number in range(count)}, wanted)
    within = (record for record in read.records if record.timestamp_ms < until_ms)
    return sorted(within, key=lambda record: (record.partition, record.offset))


_HEAD = ("WHEN", "POD", "NODE", "WHAT", "RULE", "OBSERVED", "POLICY", "CREDIT", "BY", "WHY")


def nothing(node: str, read: Collection[str], since_ms: int, until_ms: int) -> str:
    """Return the message for an empty result.

    Args:
        node: the selected node; "": any.
        read: nodes with records in the span.
        since_ms: UTC epoch.
        until_ms: UTC epoch.
    """
    span = f"until {instant(until_ms)}" if not since_ms else f"from {instant(since_ms)} to {instant(until_ms)}"
    if not read:
        return f"The audit contains no record {span}: no pod was evicted, throttled or frozen"
    of = f"node {node}" if node and node not in read else "it"
    return (
        f"The audit contains no record of {of} {span}. It contains records of {count(len(read), 'node')}; "
        f"{near(node, read)}"
    )


def shown(acts: Sequence[Act]) -> str:
    """Format one row per action, and a summary."""
    sums = Counter(what(one.body) for one in acts)
    in_all = ", ".join(f"{number} {word}" for word, number in sorted(sums.items()))
    return f"{table(_HEAD, [_row(one.body) for one in acts])}\n{count(len(acts), 'act')}: {in_all}"


def _row(one: NodeOutcome) -> tuple[str, ...]:
    pod = "all best-effort pods" if one.pod is None else f"{one.pod.namespace}/{one.pod.name}"
    spent = "-" if one.spent is None else f"{one.spent.evictions} of epoch {one.spent.epoch}"
    seen = observed(one.terms) or "-"
    return (
        instant(one.acted_ms),
        pod,
        one.node,
        what(one),
        one.rule,
        seen,
        one.policy_version or "-",
        spent,
        one.origin,
        one.reason or "-",
    )
