"""The ConfigMap from which agents read whom to trust when they enrol."""

from __future__ import annotations

from typing import Any

from slacktide.agents.cluster.certificate.manager import CONFLICT
from slacktide.agents.kubernetes import CONFIGMAPS, ApiRefusedError, ApiServer

KEY = "ca.crt"


class PublishedBundle:
    """One ConfigMap, which the manifests make.

    Args:
        api: the API server.
        namespace: of the ConfigMap.
        name: of it.

    """

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    async def read(self) -> dict[str, Any]:
        """The ConfigMap as it is.

        Raises:
            ApiError: it cannot be read.

        """
        found: dict[str, Any] = await self._api.get(CONFIGMAPS, self._name, dict[str, Any], namespace=self._namespace)
        return found

    async def have(self, read: dict[str, Any], bundle: bytes) -> bool:
        """Publish the bundle; False where another has changed what was read.

        Raises:
            ApiError: it cannot be written.

        """
        text = bundle.decode()
        if (read.get("data") or {}).get(KEY) == text:
            return True
        body = {"metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}, "data": {KEY: text}}
        try:
            await self._api.patch(CONFIGMAPS, self._name, body, dict[str, Any], namespace=self._namespace)
        except ApiRefusedError as exc:
            if exc.status != CONFLICT:
                raise
            return False
        return True
