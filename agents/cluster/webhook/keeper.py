"""Keeps the certificate: in a Secret that all replicas share, and trusted by both webhook configurations."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slacktide.agents.cluster.webhook.certificates import CertificateError, held_of, made, secret_data
from slacktide.agents.cluster.webhook.rotation import Held, Pair, Terms, turned
from slacktide.agents.kubernetes import SECRETS, ApiRefusedError, ApiServer, Resource

log = logging.getLogger(__name__)

CONFIGURATIONS = tuple(
    Resource(group="admissionregistration.k8s.io", plural=plural)
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
NOT_FOUND, CONFLICT = 404, 409
TURNS_MAX = 4
"""Steps in one look: one's own, and those where another replica was quicker."""

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the certificate is kept and who trusts it."""

    namespace: str
    secret: str
    configuration: str
    """Name of both webhook configurations."""


class Keeper:
    """One of the replicas that keep the certificate.

    Args:
        api: the API server.
        place: where the certificate is kept and who trusts it.
        terms: how certificates live.
        now_ms: UTC epoch milliseconds.

    """

    def __init__(self, api: ApiServer, place: Place, terms: Terms, now_ms: Callable[[], int]) -> None:
        self.unasked = ""
        """Why nobody asks about new pods, or evictions: a configuration is not there."""
        self._api = api
        self._place = place
        self._terms = terms
        self._now_ms = now_ms

    async def look(self) -> Pair:
        """Do what is due, and say what is to be served.

        Raises:
            ApiError: the API server is away, or lets us not.
            CertificateError: the Secret cannot be read.

        """
        held: Held | None = None
        for _ in range(TURNS_MAX):
            # Configurations before the Secret: so no older bundle can be written over a newer one.
            configurations = await self._configurations()
            secret = await self._secret()
            held = None if secret is None else self._held(secret)
            trusted = held is not None and await self._trust(configurations, held.bundle)
            after = turned(held, self._terms, self._make, trusted=trusted, now_ms=self._now_ms())
            if after is held:
                break
            await self._store(after, secret)
        assert held is not None, "what was stored is read"
        return held.served

    def _make(self) -> Pair:
        return made(
            self._terms.names,
            common_name=f"{self._place.secret}.{self._place.namespace}",
            now_ms=self._now_ms(),
            life_ms=self._terms.life_ms,
        )

    async def _secret(self) -> _Json | None:
        try:
            found: _Json = await self._api.get(
                SECRETS, self._place.secret, dict[str, Any], namespace=self._place.namespace
            )
        except ApiRefusedError as exc:
            if exc.status == NOT_FOUND:
                return None
            raise
        return found

    def _held(self, secret: Mapping[str, Any]) -> Held:
        try:
            return held_of(secret.get("data") or {})
        except CertificateError as exc:
            where = f"Secret {self._place.namespace}/{self._place.secret}"
            raise CertificateError(f"{where}: {exc}; delete it, and a new one is made") from exc

    async def _store(self, held: Held, secret: _Json | None) -> None:
        """Write the Secret, unless another replica was quicker."""
        data = secret_data(held)
        try:
            if secret is None:
                await self._create({name: text for name, text in data.items() if text is not None})
            else:
                version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
                await self._api.patch(
                    SECRETS,
                    self._place.secret,
                    {"metadata": version, "data": data},
                    dict[str, Any],
                    namespace=self._place.namespace,
                )
        except ApiRefusedError as exc:
            if exc.status not in (CONFLICT, NOT_FOUND):
                raise
            return
        following = "" if held.following is None else f", another is to follow it {self._terms.settle_ms / 1000:g} s on"
        log.info("the certificate's Secret was written: one is served%s", following)

    async def _create(self, data: Mapping[str, str]) -> None:
        part = {"app.kubernetes.io/part-of": "slacktide", "app.kubernetes.io/component": "webhook"}
        metadata = {"name": self._place.secret, "labels": {"app.kubernetes.io/name": "slacktide", **part}}
        body = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
        await self._api.create(SECRETS, body, dict[str, Any], namespace=self._place.namespace)

    async def _configurations(self) -> dict[Resource, _Json]:
        """The webhook configurations that there are; of one that is not applied nobody asks us."""
        found: dict[Resource, _Json] = {}
        for resource in CONFIGURATIONS:
            try:
                found[resource] = await self._api.get(resource, self._place.configuration, dict[str, Any])
            except ApiRefusedError as exc:
                if exc.status != NOT_FOUND:
                    raise
        lost = [f"no {one.plural}/{self._place.configuration}" for one in CONFIGURATIONS if one not in found]
        self.unasked = f"{' and '.join(lost)}: nobody asks; apply the manifests" if lost else ""
        return found

    async def _trust(self, configurations: Mapping[Resource, _Json], bundle: bytes) -> bool:
        """Have each configuration trust the bundle; False where one was changed by another meanwhile."""
        text = base64.b64encode(bundle).decode()
        for resource, configuration in configurations.items():
            webhooks = configuration.get("webhooks") or []
            clients = [webhook["clientConfig"] for webhook in webhooks]
            if all(client.get("caBundle") == text for client in clients):
                continue
            for client in clients:
                client["caBundle"] = text
            version = {"resourceVersion": configuration["metadata"]["resourceVersion"]}
            body = {"metadata": version, "webhooks": webhooks}
            try:
                await self._api.patch(resource, self._place.configuration, body, dict[str, Any])
            except ApiRefusedError as exc:
                if exc.status not in (CONFLICT, NOT_FOUND):
                    raise
                return False
            log.info("a webhook configuration trusts our certificate now", extra={"kind": resource.plural})
        return True
