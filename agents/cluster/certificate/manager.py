"""Manages a certificate: shared in a Secret, and trusted by clients before it is served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from slacktide.agents.cluster.certificate.certificates import CertificateError, held_of, made, secret_data
from slacktide.agents.cluster.certificate.rotation import Held, Pair, Terms, turned
from slacktide.agents.kubernetes import SECRETS, ApiRefusedError, ApiServer

log = logging.getLogger(__name__)

NOT_FOUND, CONFLICT = 404, 409
TURNS_MAX = 4
"""Steps per call; more only if other replicas write concurrently."""

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPlace:
    """The Secret of the certificate."""

    namespace: str
    name: str
    component: str
    """Label for the Secret if it is created here."""


S = TypeVar("S")


class Trust(Protocol[S]):
    """Where clients read which certificates to trust."""

    async def read(self) -> S:
        """Return what clients trust now.

        Raises:
            ApiError: the API server is unavailable, or denies access.
        """

    async def have(self, read: S, bundle: bytes) -> bool:
        """Publish the bundle; False: it changed since it was read.

        Raises:
            ApiError: the API server is unavailable, or denies access.
        """


class CertificateManager(Generic[S]):
    """One replica's manager of the shared certificate. ``trust`` is where clients read what to trust."""

    def __init__(
        self, api: ApiServer, place: SecretPlace, trust: Trust[S], terms: Terms, now_ms: Callable[[], int]
    ) -> None:
        self._api = api
        self._place = place
        self._trust = trust
        self._terms = terms
        self._now_ms = now_ms

    async def look(self) -> Pair:
        """Rotate if due, and return the pair to serve.

        Raises:
            ApiError: the API server is unavailable, or denies access.
            CertificateError: the Secret is unreadable.
        """
        held: Held | None = None
        for _ in range(TURNS_MAX):
            # Read trust before the Secret, so that an older bundle never overwrites a newer one.
            trusted_now = await self._trust.read()
            secret = await self._secret()
            held = None if secret is None else self._held(secret)
            trusted = held is not None and await self._trust.have(trusted_now, held.bundle)
            after = turned(held, self._terms, self._make, trusted=trusted, now_ms=self._now_ms())
            if after is held:
                break
            await self._store(after, secret)
        assert held is not None, "the stored certificate is read"
        return held.served

    def _make(self) -> Pair:
        return made(
            self._terms.names,
            common_name=f"{self._place.name}.{self._place.namespace}",
            now_ms=self._now_ms(),
            life_ms=self._terms.life_ms,
        )

    async def _secret(self) -> _Json | None:
        try:
            found: _Json = await self._api.get(
                SECRETS, self._place.name, dict[str, Any], namespace=self._place.namespace
            )
        except ApiRefusedError as exc:
            if exc.status == NOT_FOUND:
                return None
            raise
        return found

    def _held(self, secret: Mapping[str, Any]) -> Held | None:
        if not secret.get("data"):
            return None  # created empty by the manifests, so that no create permission is needed
        try:
            return held_of(secret["data"])
        except CertificateError as exc:
            where = f"Secret {self._place.namespace}/{self._place.name}"
            raise CertificateError(f"{where}: {exc}; delete it, and a new one is created") from exc

    async def _store(self, held: Held, secret: _Json | None) -> None:
        """Write the Secret, unless another replica was faster."""
        data = secret_data(held)
        try:
            if secret is None:
                await self._create({name: text for name, text in data.items() if text is not None})
            else:
                version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
                await self._api.patch(
                    SECRETS,
                    self._place.name,
                    {"metadata": version, "data": data},
                    dict[str, Any],
                    namespace=self._place.namespace,
                )
        except ApiRefusedError as exc:
            if exc.status not in (CONFLICT, NOT_FOUND):
                raise
            return
        following = "" if held.following is None else f", the next one follows in {self._terms.settle_ms / 1000:g} s"
        log.info("wrote the certificate's Secret%s", following)

    async def _create(self, data: Mapping[str, str]) -> None:
        part = {"app.kubernetes.io/part-of": "slacktide", "app.kubernetes.io/component": self._place.component}
        metadata = {"name": self._place.name, "labels": {"app.kubernetes.io/name": "slacktide", **part}}
        body = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
        await self._api.create(SECRETS, body, dict[str, Any], namespace=self._place.namespace)
