"""Reports whether the bridge carries out the queue's decisions on a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from slacktide.agents.clock import SystemClock


def carrying(kubeconfig: Path) -> str:
    """Report in one line that Jobs are started and stopped, or why not.

    Raises:
        ApiError: the API server is unavailable.
        ConfigError: the kubeconfig is invalid.
    """
    return asyncio.run(_carrying(kubeconfig))


async def _carrying(kubeconfig: Path) -> str:
    from slacktide.agents.cluster.queue.kinds import (  # noqa: PLC0415 - loads HTTP
        GROUP,
        kueue,
        served,
        workloads_of,
    )
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415 - as above
    from slacktide.agents.kubernetes.api_server import ApiServer  # noqa: PLC0415 - as above

    async with ApiServer(await access(kubeconfig), name="slacktide-queue-status") as api:
        kinds, plurals = await served(api)
        if not kinds:
            return f"shadow: the API server does not serve {GROUP}"
        rival = await kueue(api, workloads_of(plurals), SystemClock().wall_ms)
    return f"shadow: Kueue admits there: {rival}" if rival else "live: a bridge with --queue starts and stops Jobs"
