"""Follows the operator's ConfigMap and passes policies to a listener."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from slacktide.agents.kubernetes.api_server import ApiServer, Changed, Gone, Over, Trouble, Whole, follow
from slacktide.agents.kubernetes.resource import CONFIGMAPS
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, Policy, parse

log = logging.getLogger(__name__)

ABSENT_S = 10.0
"""A ConfigMap that is recreated within this time counts as unchanged."""


class PolicyListener(Protocol):
    """Receives policies, on the event loop's thread."""

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""

    def trouble(self, of: str, why: str) -> None:
        """Note why ``policy`` cannot be read or is invalid; "": all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapName:
    """Namespace and name of the operator's ConfigMap."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"


class PolicySource:
    """Follows one ConfigMap. If it is invalid, the last valid policy stays in force, even an earlier leader's."""

    def __init__(self, listener: PolicyListener, last: Policy | None, config_map: ConfigMapName) -> None:
        self._listener, self._last, self._config_map = listener, last, config_map
        self._absent: asyncio.TimerHandle | None = None
        self._why = ""
        """What is wrong with the ConfigMap."""

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        name = self._config_map
        following = follow(api, CONFIGMAPS, dict, namespace=name.namespace, fields=f"metadata.name={name.name}")
        try:
            async with aclosing(following) as events:
                async for one in events:
                    match one:
                        case Trouble(why=why):
                            self._listener.trouble("policy", why)
                        case Changed(object=document) | Whole(items=[document]):
                            self._there(document)
                        case Whole() | Gone():
                            self._not_there()
                        case Over():
                            self._listener.trouble("policy", self._why)
        finally:
            self._back()

    def _there(self, document: dict[str, object]) -> None:
        self._back()
        try:
            parsed = parse({**document, "kind": "ConfigMap"}, str(self._config_map))  # list items have no kind
        except ConfigError as exc:
            log.error("%s", exc)  # noqa: TRY400 - raised on purpose: the message is complete
            self._is(f"rejected, the last valid policy stays in force: {exc}", self._last)
            return
        for note in parsed.notes:
            log.warning("%s", note)
        self._is("", parsed.policy)

    def _not_there(self) -> None:
        if self._absent is None:
            self._absent = asyncio.get_running_loop().call_later(ABSENT_S, self._default)

    def _default(self) -> None:
        self._is(f"{self._config_map} does not exist: all strategies are disabled", DEFAULT)

    def _back(self) -> None:
        if self._absent is not None:
            self._absent.cancel()
            self._absent = None

    def _is(self, why: str, policy: Policy | None) -> None:
        self._why, self._last = why, policy
        self._listener.trouble("policy", why)
        if policy is not None:
            self._listener.policy(policy)
