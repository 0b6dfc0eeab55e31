"""``slacktide diff``: what Slacktide decides, beside what the cluster has now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import count, output_option, rendered, show, table
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.connection import Cluster
from slacktide.schemas.sample import Limits

if TYPE_CHECKING:  # not needed for --help
    from slacktide.streams.analysis.explain.node_log import NodeLog

_HEAD = ("NODE", "BATCH-CPU", "SLACKTIDE", "BATCH-MEMORY", "SLACKTIDE", "LIMIT", "SLACKTIDE")
GIB = 2**30
STALE_MS = 60_000
"""Workers republish unchanged figures every 30 s, and heartbeats cover them meanwhile."""
Offered = tuple[int | None, int | None]
"""Batch CPU in thousandths of a CPU and batch memory in bytes; None: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One node; None: none or not known."""

    node: str
    cluster_cpu_milli: int | None
    """In the Node's status."""
    batch_cpu_milli: int | None
    """Slacktide's."""
    cluster_mem_bytes: int | None
    batch_mem_bytes: int | None
    limits: Limits | None
    """In the kernel, for best-effort pods."""
    decided_limits: Limits | None
    """What the newest answer sets; without a change, those in the kernel."""


@click.command(epilog="Example: slacktide diff --bootstrap kafka-1:9092 --kubeconfig admin.conf")
@settings.bootstrap_option
@click.option(
    "--kubeconfig",
    type=settings.file(),
    help="Kubeconfig file of the API server. Default: $KUBECONFIG, the pod's service account, or ~/.kube/config.",
)
@output_option("text", "json", "yaml")
def command(bootstrap: Cluster, kubeconfig: Path | None, output: str) -> None:
    """Compare the cluster's Nodes with Slacktide's figures, for example while agents run with --dry-run.

    BATCH-CPU and BATCH-MEMORY are allocatable in the Node's status, which Koordinator or the bridge wrote. LIMIT is
    that of best-effort pods in the kernel. After each follows what Slacktide decides. It reads Nodes and Kafka.

    With -o json or yaml: a list of {"node", "cluster_cpu_milli", "batch_cpu_milli", "cluster_mem_bytes",
    "batch_mem_bytes", "limits", "decided_limits"}.
    """
    from slacktide.deploy.cli.explain.log import node_logs, opened  # noqa: PLC0415 - loads Kafka: not for --help

    async def read() -> list[Compared]:
        nodes = await _offered(kubeconfig)
        now_ms = SystemClock().wall_ms()
        async with opened(bootstrap, now_ms) as log:
            return compared(nodes, await node_logs(log), now_ms)

    rows = asyncio.run(read())
    show(rendered(rows, output, lambda: text_of(rows)))


async def _offered(kubeconfig: Path | None) -> dict[str, Offered]:
    from slacktide.agents.cluster.bridge.node_status import shown  # noqa: PLC0415 - loads HTTP: not for --help
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415
    from slacktide.agents.kubernetes.api_server import ApiServer  # noqa: PLC0415
    from slacktide.agents.kubernetes.objects import Node  # noqa: PLC0415
    from slacktide.agents.kubernetes.resource import NODES  # noqa: PLC0415

    async with ApiServer(await access(kubeconfig), name="slacktide-diff") as api:
        listed = await api.list(NODES, Node)
    return {node.metadata.name: shown(node.status.capacity, node.status.allocatable).batch for node in listed.items}


def compared(nodes: Mapping[str, Offered], logs: Iterable[NodeLog], now_ms: int) -> list[Compared]:
    """Pair the cluster's Nodes with the records of each, by name.

    Nodes without fresh records have no agent, or a silent one. ``now_ms``: by the clock of the records' times.
    """
    by_name = {log.node: log for log in logs}
    return [_compared(name, nodes[name], by_name.get(name), now_ms) for name in sorted(nodes)]


def _compared(name: str, offered: Offered, log: NodeLog | None, now_ms: int) -> Compared:
    own = None if log is None else _fresh(log, now_ms)
    sample = None if log is None or log.sample is None else log.sample.body
    limits = None if sample is None else sample.limits
    command = None if log is None or sample is None else log.command
    decided = None if command is None or command.body.answer == "skipped" else command.body
    return Compared(
        node=name,
        cluster_cpu_milli=offered[0],
        batch_cpu_milli=None if own is None else own.batch_cpu_milli,
        cluster_mem_bytes=offered[1],
        batch_mem_bytes=None if own is None else own.batch_mem_bytes,
        limits=limits,
        decided_limits=None if decided is None else decided.hold[-1].limits if decided.hold else limits,
    )


def _fresh(log: NodeLog, now_ms: int) -> NodeAllocatable | None:
    """Return a node's figures, unless its agent is silent or gone."""
    found = log.allocatable
    if found is None or found.body.stale_ms or log.uncovered_ms(found, now_ms) > STALE_MS:
        return None
    return found.body


def text_of(rows: Sequence[Compared]) -> str:
    """Format a table, and the sums of the nodes that both have figures of."""
    both = [row for row in rows if row.cluster_cpu_milli is not None and row.batch_cpu_milli is not None]
    theirs, own = (sum(getattr(row, name) or 0 for row in both) for name in ("cluster_cpu_milli", "batch_cpu_milli"))
    sums = f"{count(len(both), 'node')} of {len(rows)} with both; batch-cpu {_milli(theirs)}, Slacktide {_milli(own)}"
    return "\n".join([table(_HEAD, [_cells(row) for row in rows]), sums + _change(theirs, own)])


def _cells(row: Compared) -> list[str]:
    from slacktide.deploy.cli.explain.node_text import limits_text  # noqa: PLC0415

    return [
        row.node,
        _milli(row.cluster_cpu_milli),
        _milli(row.batch_cpu_milli) + _change(row.cluster_cpu_milli, row.batch_cpu_milli),
        _gib(row.cluster_mem_bytes),
        _gib(row.batch_mem_bytes) + _change(row.cluster_mem_bytes, row.batch_mem_bytes),
        limits_text(row.limits),
        limits_text(row.decided_limits),
    ]


def _milli(amount: int | None) -> str:
    return "-" if amount is None else f"{amount:,}m"


def _gib(amount: int | None) -> str:
    return "-" if amount is None else f"{amount / GIB:.2f}Gi"


def _change(before: int | None, now: int | None) -> str:
    return f" ({100 * (now - before) / before:+.0f}%)" if before and now is not None else ""
