"""The cluster keys in their Secret: created if missing, and reloaded on change."""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
from collections.abc import Callable
from typing import Any

from slacktide.agents.kubernetes import SECRETS, ApiRefusedError, ApiServer
from slacktide.schemas.proof import CURRENT, PREVIOUS, SECRET_BYTES_MIN, ClusterKey, ProofKeyError

log = logging.getLogger(__name__)

SECRET = "slacktide-node-proof"  # noqa: S105 - its name
SETTLE_S = 300.0
"""A kubelet updates a mounted Secret within two minutes; before that workers do not know a new key."""
CONFLICT = 409


class Ring:
    """The keys of one cluster, as one replica sees them. ``now_s`` is a monotonic clock, in seconds."""

    def __init__(self, api: ApiServer, namespace: str, now_s: Callable[[], float]) -> None:
        self._api = api
        self._namespace = namespace
        self._now_s = now_s
        self._keys: list[ClusterKey] = []
        self._since_s = 0.0

    def keys(self) -> list[ClusterKey]:
        """Keys with the active one first: the newest that every worker has had time to load."""
        settled = self._now_s() - self._since_s >= SETTLE_S
        return self._keys if settled or len(self._keys) == 1 else self._keys[::-1]

    async def look(self) -> None:
        """Read the Secret, and fill it if it is empty.

        Raises:
            ApiError: the API server is unavailable or denies access, or the Secret is missing.
            ProofKeyError: the Secret has an invalid key.
        """
        secret: dict[str, Any] = await self._api.get(SECRETS, SECRET, dict[str, Any], namespace=self._namespace)
        data: dict[str, str] = secret.get("data") or {}
        if not data.get(CURRENT):
            await self._fill(secret["metadata"]["resourceVersion"])
            return
        keys = [_key_of(data[name]) for name in (CURRENT, PREVIOUS) if data.get(name)]
        if keys != self._keys:
            self._keys, self._since_s = keys, self._now_s()
            log.info("loaded cluster keys", extra={"key_ids": [key.id for key in keys]})

    async def _fill(self, version: str) -> None:
        """Another replica may be faster; the next call reads its key."""
        key = base64.b64encode(secrets.token_bytes(SECRET_BYTES_MIN))
        body = {"metadata": {"resourceVersion": version}, "data": {CURRENT: base64.b64encode(key).decode()}}
        try:
            await self._api.patch(SECRETS, SECRET, body, dict[str, Any], namespace=self._namespace)
        except ApiRefusedError as exc:
            if exc.status != CONFLICT:
                raise
            return
        log.info("created a cluster key", extra={"secret": SECRET})


def _key_of(text: str) -> ClusterKey:
    try:
        return ClusterKey.of(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, ValueError) as exc:
        raise ProofKeyError(f"Secret {SECRET}: a value is not valid base64") from exc
