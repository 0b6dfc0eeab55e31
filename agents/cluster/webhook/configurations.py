"""The webhook configurations with the CA bundle that the API server trusts."""

from __future__ import annotations

import base64
import logging
from typing import Any

from slacktide.agents.cluster.certificate.manager import CONFLICT, NOT_FOUND
from slacktide.agents.kubernetes import ApiRefusedError, ApiServer, Resource

log = logging.getLogger(__name__)

CONFIGURATIONS = tuple(
    Resource(group="admissionregistration.k8s.io", plural=plural)
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)

_Json = dict[str, Any]
Configurations = dict[Resource, _Json]


class WebhookConfigurations:
    """The mutating and the validating configuration of one name."""

    def __init__(self, api: ApiServer, name: str) -> None:
        self.unasked = ""
        """Which webhook the API server does not call, since its configuration is missing."""
        self._api = api
        self._name = name

    async def read(self) -> Configurations:
        """Read the existing configurations."""
        found: Configurations = {}
        for resource in CONFIGURATIONS:
            try:
                found[resource] = await self._api.get(resource, self._name, dict[str, Any])
            except ApiRefusedError as exc:
                if exc.status != NOT_FOUND:
                    raise
        lost = [f"no {one.plural}/{self._name}" for one in CONFIGURATIONS if one not in found]
        self.unasked = (
            f"{' and '.join(lost)}: the API server does not call the webhook; apply the manifests again" if lost else ""
        )
        return found

    async def have(self, read: Configurations, bundle: bytes) -> bool:
        """Set the CA bundle of each; False: one was changed concurrently."""
        text = base64.b64encode(bundle).decode()
        for resource, configuration in read.items():
            webhooks = configuration.get("webhooks") or []
            clients = [webhook["clientConfig"] for webhook in webhooks]
            if all(client.get("caBundle") == text for client in clients):
                continue
            for client in clients:
                client["caBundle"] = text
            version = {"resourceVersion": configuration["metadata"]["resourceVersion"]}
            body = {"metadata": version, "webhooks": webhooks}
            try:
                await self._api.patch(resource, self._name, body, dict[str, Any])
            except ApiRefusedError as exc:
                if exc.status not in (CONFLICT, NOT_FOUND):
                    raise
                return False
            log.info("updated the CA bundle of a webhook configuration", extra={"kind": resource.plural})
        return True
