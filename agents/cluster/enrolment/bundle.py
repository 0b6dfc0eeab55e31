"""The ConfigMap with the CA bundle for enrolling agents."""

from __future__ import annotations

from typing import Any

from slacktide.agents.cluster.certificate.manager import CONFLICT
from slacktide.agents.kubernetes import CONFIGMAPS, ApiRefusedError, ApiServer

KEY = "ca.crt"


class PublishedBundle:
    """A ConfigMap that the manifests create."""

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    async def read(self) -> dict[str, Any]:
        """Read the ConfigMap.

        Raises:
            ApiError: the read failed.
        """
        found: dict[str, Any] = await self._api.get(CONFIGMAPS, self._name, dict[str, Any], namespace=self._namespace)
        return found

    async def have(self, read: dict[str, Any], bundle: bytes) -> bool:
        """Publish the bundle; False: the ConfigMap changed since it was read.

        Raises:
            ApiError: the write failed.
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
