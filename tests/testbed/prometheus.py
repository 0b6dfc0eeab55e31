"""Prometheus' own tools, as ``tests/testbed/setup prometheus`` has unpacked them."""

import subprocess
from itertools import chain
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from slacktide.agents.cluster import watching as of_api_watches
from slacktide.agents.cluster.bridge import metrics as of_bridges
from slacktide.agents.cluster.descheduler import metrics as of_descheduling
from slacktide.agents.cluster.queue import metrics as of_queued_jobs
from slacktide.agents.cluster.scheduler import metrics as of_schedulers
from slacktide.agents.cluster.webhook import metrics as of_webhooks
from slacktide.agents.node import metrics as of_agents
from slacktide.agents.sli import metrics as of_latencies
from slacktide.deploy.console import metrics as of_consoles
from slacktide.streams.engine import metrics as of_workers
from slacktide.streams.engine import queue_metrics as of_queues
from testbed.reaching import needs
from testbed.rungs import cache

ENDS = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}


@needs("prometheus")
def tool(name: str) -> str:
    return str(cache() / "prometheus" / name)


def promtool(*arguments: str | Path) -> tuple[int, str]:
    command = [tool("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def served() -> set[str]:
    """The names of all time series that there are."""
    families = chain.from_iterable(one.describe() for one in all_metrics())
    return {family.name + end for family in families for end in ENDS[family.type]}


def all_metrics() -> list[MetricWrapperBase]:
    """Those of all parts."""
    rooms = (
        *(of_agents, of_workers, of_queues, of_bridges, of_queued_jobs, of_descheduling),
        *(of_schedulers, of_webhooks, of_latencies, of_consoles, of_api_watches),
    )
    return [one for room in rooms for one in vars(room).values() if isinstance(one, MetricWrapperBase)]
