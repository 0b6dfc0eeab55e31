"""Follows the objects that admission needs."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from slacktide.agents.cluster.watching import ConfigMapName, PolicySource, ignored, inform
from slacktide.agents.cluster.webhook.metrics import PROFILES
from slacktide.agents.cluster.webhook.mutation import DatedProfile, Namespace, dated, namespace_of, priority_class_of
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.resource import NAMESPACES, PRIORITY_CLASSES, ApiError, Resource
from slacktide.agents.kubernetes.resource import PROFILES as PROFILE_KIND
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import AdmissionPolicy
from slacktide.streams.decisions.admission.label_selector import InvalidSelector
from slacktide.streams.decisions.admission.webhook_colocation_profile import PriorityClass

log = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_UP_S = 1.0
"""Timeout for reading a namespace that the watch has not shown yet."""
KNOWN_S = 1.0
"""Timeout for the first read: a cluster may have no policy."""


class Followed(Generic[T]):
    """The objects of one kind, by name."""

    def __init__(self, resource: Resource, read: Callable[[Mapping[str, Any]], T]) -> None:
        self.objects: dict[str, T] = {}
        self.known = asyncio.Event()
        """Set after the first list, or when it fails."""
        self.whole = False
        self.trouble = ""
        """Why the kind cannot be read now; "": it can."""
        self.unusable: set[str] = set()
        self._resource, self._read = resource, read

    async def run(self, api: ApiServer) -> None:
        """Follow until cancelled."""
        updates = follow(api, self._resource, dict[str, Any])
        await inform(updates, self._whole, self.take, lambda _, name: self._forget(name), self._troubled)

    def _whole(self, items: list[dict[str, Any]]) -> None:
        self.objects.clear()
        self.unusable.clear()
        for item in items:
            self.take(item)
        self.whole = True

    def take(self, item: Mapping[str, Any]) -> None:
        """Add or update an object; an invalid one is logged and ignored."""
        name = str(item["metadata"]["name"])
        self._forget(name)
        try:
            self.objects[name] = self._read(item)
        except Exception as exc:  # noqa: BLE001 - whatever is in one object costs this object alone
            self.unusable.add(name)
            ignored(self._resource.plural, item, exc)

    def _forget(self, name: str) -> None:
        self.objects.pop(name, None)
        self.unusable.discard(name)

    def _troubled(self, why: str) -> None:
        if why and not self.trouble:
            log.warning("cannot read from the API server", extra={"kind": self._resource.plural, "why": why})
        self.trouble = why
        self.known.set()


class ClusterCache:
    """Profiles, namespaces, priority classes, and whether free pods are translated."""

    def __init__(self, api: ApiServer, config_map: ConfigMapName) -> None:
        self.profiles: Followed[DatedProfile] = Followed(PROFILE_KIND, dated)
        self.namespaces: Followed[Namespace] = Followed(NAMESPACES, namespace_of)
        self.priority_classes: Followed[PriorityClass] = Followed(PRIORITY_CLASSES, priority_class_of)
        self.free_class_enabled = False
        """Whether the policy offers free resources on any node."""
        self.demands = AdmissionPolicy()
        self._policies = PolicySource(self, None, config_map)
        self._policy_known = asyncio.Event()
        self._policy_trouble = ""
        self._api = api

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        async with asyncio.TaskGroup() as following:
            following.create_task(self._policies.run(self._api))
            for one in self._all:
                following.create_task(one.run(self._api))

    async def known(self) -> None:
        """Wait until each kind was listed, or cannot be."""
        for one in self._all:
            await one.known.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                await self._policy_known.wait()

    def policy(self, policy: Policy) -> None:
        """Apply a policy. Without one the free class is disabled."""
        self.demands = policy.admission
        strategies = [policy.colocation, *(one.strategy for one in policy.node_colocation)]
        self.free_class_enabled = any(one.enable and one.free_class_enable for one in strategies)
        self._policy_known.set()

    def policy_trouble(self, why: str) -> None:
        """Note why the policy cannot be read; "": it can."""
        if why and why != self._policy_trouble:
            log.warning("cannot read the policy", extra={"why": why})
        self._policy_trouble = why
        if why:
            self._policy_known.set()

    async def policy_refused(self, api: ApiServer, document: dict[str, Any], text: str) -> None:
        """Nothing: the bridge reports it."""

    @property
    def lacking(self) -> str:
        """Why no pod can be judged yet; "": each kind was listed once."""
        return "; ".join(one.trouble or "no answer yet" for one in self._all if not one.whole)

    @property
    def trouble(self) -> str:
        """Why the cache may be outdated; "": it is current."""
        return "; ".join(filter(None, [*(one.trouble for one in self._all), self._policy_trouble]))

    async def namespace(self, name: str) -> Namespace | None:
        """Labels and annotations of a namespace; None: it cannot be read."""
        found = self.namespaces.objects.get(name)
        if found is None:
            try:
                async with asyncio.timeout(LOOK_UP_S):
                    item: dict[str, Any] = await self._api.get(NAMESPACES, name, dict[str, Any])
            except (ApiError, TimeoutError) as exc:
                log.warning("cannot read a namespace", extra={"namespace": name, "why": str(exc)})
                return None
            found = namespace_of(item)
        return found

    def count(self) -> None:
        """Update the metric of usable and invalid profiles."""
        invalid = sum(
            isinstance(one.profile.selector, InvalidSelector)
            or isinstance(one.profile.namespace_selector, InvalidSelector)
            for one in self.profiles.objects.values()
        )
        PROFILES.labels("usable").set(len(self.profiles.objects) - invalid)
        PROFILES.labels("unusable").set(invalid + len(self.profiles.unusable))

    @property
    def _all(self) -> tuple[Followed[DatedProfile], Followed[Namespace], Followed[PriorityClass]]:
        return self.profiles, self.namespaces, self.priority_classes
