"""Whether koord-free pods are translated, by the operator's policy."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from slacktide.agents.cluster.policy_source import ConfigMapName, PolicySource
from slacktide.agents.kubernetes import ApiServer
from slacktide.schemas.policy import Policy

log = logging.getLogger(__name__)

KNOWN_S = 1.0
"""Timeout for the first read: a cluster may have no policy."""


class FreeClass:
    """Follows the operator's ConfigMap; without one the class is disabled."""

    def __init__(self, config_map: ConfigMapName) -> None:
        self.enabled = False
        """Whether free resources are offered on any node."""
        self.why = ""
        """Why the policy may be outdated; "": it is current."""
        self._known = asyncio.Event()
        self._source = PolicySource(self, None, config_map)

    async def run(self, api: ApiServer) -> None:
        """Follow until cancelled."""
        await self._source.run(api)

    async def known(self) -> None:
        """Wait shortly for the policy, which may not exist."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                await self._known.wait()

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""
        strategies = [policy.colocation, *(one.strategy for one in policy.node_colocation)]
        self.enabled = any(one.enable and one.free_class_enable for one in strategies)
        self._known.set()

    def trouble(self, of: str, why: str) -> None:
        """Note why the policy cannot be read; "": it can."""
        if why and why != self.why:
            log.warning("cannot read the %s", of, extra={"why": why})
        self.why = why
        if why:
            self._known.set()
