"""Where the bridge's Deployment is deleted, each replica that ends removes batch and mid resources from all Nodes."""

from __future__ import annotations

import asyncio
import logging

from slacktide.agents.cluster.bridge.node_status import WITHDRAWN
from slacktide.agents.cluster.bridge.sources import Node
from slacktide.agents.kubernetes import NODES, ApiError, ApiRefusedError, ApiServer
from slacktide.agents.workload import Standing, path_of, standing

log = logging.getLogger(__name__)

ANSWER_S = 2.0
WITHDRAW_S = 5.0
"""Both together are below the 9 s after which a process that ends is cut short."""
AT_ONCE = 16
REMEDY = "docs/kubernetes.md#remove-it"


async def withdraw_if_removed(api: ApiServer, deployment: str) -> None:
    """Ask for the Deployment, and remove the resources where it is deleted. Never raises.

    Args:
        api: the API server.
        deployment: NAMESPACE/NAME.

    """
    now = await _standing(api, deployment)
    if now == "refused":
        # `kubectl delete -k` deletes the account first: then nothing can be written any more.
        log.error(
            "the bridge may not read its Deployment: if that is deleted, Nodes keep batch resources",
            extra={"deployment": deployment, "remedy": REMEDY},
        )
    if now != "deleted":
        return
    try:
        async with asyncio.timeout(WITHDRAW_S):
            listed = await api.list(NODES, Node)
            nodes = [node.metadata.name for node in listed.items if node.shown().any]
            few = asyncio.Semaphore(AT_ONCE)
            results = await asyncio.gather(*(_withdraw(api, name, few) for name in nodes), return_exceptions=True)
            failures = [one for one in results if one is not None]
            if failures:
                raise failures[0]
    except (ApiError, TimeoutError) as exc:
        why = str(exc) or f"not done within {WITHDRAW_S:g} s"
        log.error("some Nodes keep batch resources", extra={"why": why, "remedy": REMEDY})  # noqa: TRY400 - it tells all
    else:
        log.info("the bridge is removed: Nodes have no batch and mid resources any more", extra={"nodes": len(nodes)})


async def _withdraw(api: ApiServer, name: str, few: asyncio.Semaphore) -> None:
    async with few:
        await api.patch(NODES, name, WITHDRAWN.body, Node, sub="status")


async def _standing(api: ApiServer, deployment: str) -> Standing:
    try:
        async with asyncio.timeout(ANSWER_S):
            return standing(200, (await api.text(path_of("deployments", deployment))).encode())
    except ApiRefusedError as exc:
        return standing(exc.status, b"")
    except (ApiError, TimeoutError):
        return "unknown"
