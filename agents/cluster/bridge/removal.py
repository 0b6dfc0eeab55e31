"""Removes batch and mid resources from Nodes when the bridge is removed from the cluster.

That is when its Deployment, RBAC or namespace is deleted, as by `kubectl delete -k` or `kubectl delete namespace`. A
finalizer keeps the RBAC objects until the Nodes are done. The leader adds it before its first write to a Node.
"""

import asyncio
import logging

import msgspec

from slacktide.agents.cluster.bridge.node_status import NAMES, WITHDRAWN, shown
from slacktide.agents.cluster.bridge.writing import NodeSelector
from slacktide.agents.kubernetes.api_server import STRATEGIC_PATCH, ApiServer
from slacktide.agents.kubernetes.objects import Head, NodeStatus
from slacktide.agents.kubernetes.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    FORBIDDEN,
    NODES,
    NOT_FOUND,
    SERVICE_ACCOUNTS,
    UNAUTHORIZED,
    ApiError,
    ApiRefusedError,
    IgnoreStatus,
    Resource,
)
from slacktide.agents.workload import Standing, namespace_of, path_of, standing
from slacktide.schemas.queue_objects import Part

log = logging.getLogger(__name__)

FINALIZER = "slacktide.io/batch-resources"
ADDED = {"metadata": {"finalizers": [FINALIZER]}}
REMOVED = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
"""Strategic merge patches. They leave other finalizers as they are, and cannot conflict with other writers."""
LOOK_S = 2.0
HEAD_START_S = 3.0
"""The leader notices within ``LOOK_S`` and stops writing. A standby replica waits for that."""
LAST_S = 8.0
"""Limit for the cleanup: below the 9 s after which the process is ended."""
LOOKS, AGAIN_S = 8, 0.5
"""Helm deletes the Role first, then the objects with a finalizer, within these checks."""
AT_ONCE = 16
REMEDY = "docs/kubernetes.md#remove-it"


class _Fields(msgspec.Struct, rename={"fields": "fieldsV1"}):
    manager: str = ""
    fields: msgspec.Raw = msgspec.Raw()


class _NodeMetadata(Part, frozen=True, kw_only=True):
    name: str
    labels: dict[str, str] | None = None
    managed_fields: list[_Fields] = []


class _Node(Part, frozen=True, kw_only=True):
    metadata: _NodeMetadata
    status: NodeStatus = NodeStatus()

    def offered_by(self, manager: str) -> bool:
        """Return whether it has batch or mid resources that no other manager wrote last, such as Koordinator.

        Without managed fields they count as the bridge's.
        """
        if not self.metadata.managed_fields:
            return shown(self.status.capacity, self.status.allocatable).any
        written = [bytes(one.fields) for one in self.metadata.managed_fields if one.manager == manager]
        ours = any(f'"f:{name}"'.encode() in fields for fields in written for name in NAMES.values())
        return ours and shown(self.status.capacity, self.status.allocatable).any


class Removal:
    """Watches the RBAC objects of the bridge, and cleans up on exit.

    ``deployment`` is NAMESPACE/NAME. Its ClusterRole, ClusterRoleBinding and ServiceAccount share NAME.
    ``manager``: the bridge's field manager name. ``selector``: of its Nodes; None: all.
    """

    def __init__(self, api: ApiServer, deployment: str, manager: str, selector: NodeSelector | None = None) -> None:
        self._api, self._deployment, self._manager, self._selector = api, deployment, manager, selector
        namespace, _, self._name = deployment.partition("/")
        self._why = ""
        """Why the last try failed."""
        self._rights: tuple[tuple[Resource, str], ...] = (
            (SERVICE_ACCOUNTS, namespace),
            (CLUSTER_ROLES, ""),
            (CLUSTER_ROLE_BINDINGS, ""),
        )

    async def hold(self) -> None:
        """Add the finalizer to each RBAC object, unless one is being deleted. Never raises."""
        try:
            if await self._being_deleted() == "deleted":
                return
            for resource, namespace in self._rights:
                await self._api.patch(resource, self._name, ADDED, Head, namespace=namespace, how=STRATEGIC_PATCH)
        except ApiError as exc:
            why = (
                "cannot add a finalizer to the bridge's RBAC objects: if they are deleted first, Nodes keep batch "
                "resources"
            )
            log.warning(why, extra={"why": str(exc), "remedy": "kubectl apply -k deploy/kubernetes"})

    async def begun(self) -> None:
        """Return once an RBAC object or the namespace is being deleted."""
        while await self._being_deleted() != "deleted":  # noqa: ASYNC110 - no right to watch
            await asyncio.sleep(LOOK_S)

    async def finish(self, *, leads: bool) -> None:
        """On exit: if the bridge is removed, remove resources from Nodes, then the finalizer. Never raises.

        ``leads``: this replica wrote to Nodes until now. Others wait until the leader has stopped.
        """
        left = "some Nodes keep batch resources"
        try:
            async with asyncio.timeout(LAST_S):
                if not await self._removed(leads=leads):
                    return
                nodes = await self._withdraw()
                log.info("the bridge is being removed: deleted batch resources from Nodes", extra={"nodes": nodes})
                left = f"Nodes are done, only the finalizer {FINALIZER} is left on the bridge's RBAC objects"
                await self._release()
        except (ApiError, TimeoutError) as exc:
            why = str(exc) or f"not finished within {LAST_S:g} s{self._why}"
            log.error(left, extra={"why": why, "remedy": REMEDY})  # noqa: TRY400 - complete

    async def _removed(self, *, leads: bool) -> bool:
        for _ in range(LOOKS):
            rights = await self._being_deleted()
            if rights == "deleted" and not leads:
                await asyncio.sleep(HEAD_START_S)
                return await self._being_deleted() == "deleted"
            if rights == "deleted":
                return True
            if rights == "refused":
                if leads:
                    log.error(
                        "the bridge has lost its rights: if it is removed now, Nodes keep batch resources",
                        extra={"deployment": self._deployment, "remedy": REMEDY},
                    )
                return False
            now = await self._standing(path_of("deployments", self._deployment))
            if now != "refused":
                return now == "deleted"
            await asyncio.sleep(AGAIN_S)  # its Role is gone; other RBAC objects may be deleted next
        return False

    async def _being_deleted(self) -> Standing:
        """The state of the RBAC objects; ``deleted``: one with our finalizer is being deleted, or the namespace is."""
        try:
            reading = (self._api.get(kind, self._name, Head, namespace=namespace) for kind, namespace in self._rights)
            if any(one.metadata.deletion_timestamp for one in await asyncio.gather(*reading)):
                return "deleted"
            return "deleted" if await self._standing(namespace_of(self._deployment)) == "deleted" else "there"
        except ApiRefusedError as exc:
            return "refused" if exc.status in {UNAUTHORIZED, FORBIDDEN, NOT_FOUND} else "unknown"
        except ApiError:
            return "unknown"

    async def _standing(self, path: str) -> Standing:
        try:
            return standing(200, (await self._api.text(path)).encode())
        except ApiRefusedError as exc:
            return standing(exc.status, b"")
        except ApiError:
            return "unknown"

    def _is_ours(self, node: _Node) -> bool:
        selected = self._selector is None or self._selector.selects(node.metadata.labels)
        return selected and node.offered_by(self._manager)

    async def _withdraw(self) -> int:
        """Remove the resources from all Nodes that this bridge wrote last; returns the number of Nodes."""
        listed = await self._api.list(NODES, _Node)
        names = [node.metadata.name for node in listed.items if self._is_ours(node)]
        few = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with few:
                with IgnoreStatus(NOT_FOUND):
                    await self._api.patch(NODES, name, WITHDRAWN.body, _Node, sub="status")

        await asyncio.gather(*(one(name) for name in names))
        return len(names)

    async def _release(self) -> None:
        """Remove the finalizer from all objects concurrently: after the first deletion the permissions are gone.

        What fails is repeated until the caller's time limit is over. Raises ApiError for what is forbidden.
        """
        held = [resource.path(namespace=namespace, name=self._name) for resource, namespace in self._rights]
        forbidden: list[ApiError] = []
        while held:
            errors = await self._api.patch_together(held, REMOVED)
            forbidden += [error for error in errors.values() if _status(error) in {UNAUTHORIZED, FORBIDDEN}]
            held = [path for path, error in errors.items() if error not in forbidden and _status(error) != NOT_FOUND]
            if held:
                self._why = f": {errors[held[0]]}"
                await asyncio.sleep(AGAIN_S)
        if forbidden:
            raise forbidden[0]


def _status(error: ApiError) -> int:
    return error.status if isinstance(error, ApiRefusedError) else 0
