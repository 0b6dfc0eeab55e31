"""Reports exclusive CPUs of a node, by its newest pod list."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node_log import NodeLog

NAMED_MAX = 5


def exclusive_findings(log: NodeLog) -> Iterator[Finding]:
    """Report the exclusive CPUs and their pods in one finding."""
    owners = [pod for pod in log.pods if pod.exclusive_cpus and pod.phase not in ENDED_PHASES]
    if owners:
        named = [f"{one.namespace}/{one.name} has {one.exclusive_cpus}" for one in owners[:NAMED_MAX]]
        more = f" and {len(owners) - NAMED_MAX} more" if len(owners) > NAMED_MAX else ""
        yield Finding(
            name="cpus.exclusive",
            severity="note",
            text=f"exclusive CPUs: {', '.join(named)}{more}; best-effort pods cannot use them, even when they are idle",
        )
