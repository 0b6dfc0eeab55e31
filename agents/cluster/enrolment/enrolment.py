"""The enrolment server of one replica of the bridge. Every replica serves it, leader or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from prometheus_client import Counter, Gauge

from slacktide.agents.cluster.certificate.certificates import CertificateManager, SecretPlace, Tls
from slacktide.agents.cluster.certificate.rotation import Terms
from slacktide.agents.cluster.enrolment.issuer import Issuer, NoKeyError, NotAnAgentError, Ring
from slacktide.agents.cluster.enrolment.server import Reply, serving
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFIGMAPS, CONFLICT, IgnoreStatus
from slacktide.schemas.codec import encode
from slacktide.schemas.errors import SlacktideError

log = logging.getLogger(__name__)

SERVICE = "slacktide-bridge"
SECRET = "slacktide-enrolment-tls"  # noqa: S105 - its name
CONFIG_MAP = "slacktide-enrolment-ca"
SETTLE_MS = 600_000
"""Time for kubelets and agents to load a changed bundle before its certificate is served."""
LOOK_S, RETRY_S = 10.0, 2.0
BUNDLE_KEY = "ca.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentSettings:
    """Settings of one replica."""

    namespace: str
    """Namespace of the Service, both Secrets, the ConfigMap and the agents."""
    host: str
    port: int
    terms: Terms | None = None
    """Lifetime of certificates; None: the default, for the Service's names."""
    look_s: float = LOOK_S


def names_of(namespace: str) -> frozenset[str]:
    """DNS names of the Service."""
    service = f"{SERVICE}.{namespace}.svc"
    return frozenset({service, f"{service}.cluster.local"})


class Enrolment:
    """Enrols agents."""

    def __init__(self, api: ApiServer, settings: EnrolmentSettings, ring: Ring, now_ms: Callable[[], int]) -> None:
        self.trouble = ""
        """Why agents cannot enrol, or soon cannot; "": they can."""
        self.port = 0
        self._settings = settings
        namespace = settings.namespace
        terms = settings.terms or Terms(names=names_of(namespace), settle_ms=SETTLE_MS)
        place = SecretPlace(namespace=namespace, name=SECRET, component="bridge")
        self._ring = ring
        self._certificates = CertificateManager(api, place, PublishedBundle(api, namespace, CONFIG_MAP), terms, now_ms)
        self._issuer = Issuer(api, namespace, ring.keys, now_ms)

    async def run(self) -> None:
        """Serve until cancelled."""
        tls = await self._first()
        async with serving(self._answer, tls.context, self._settings.host, self._settings.port) as port:
            self.port = port
            log.info("serving enrolment", extra={"host": self._settings.host, "port": port})
            while True:
                await asyncio.sleep(self._settings.look_s)
                await self._look(tls)

    async def _first(self) -> Tls:
        while True:
            try:
                return Tls(await self._certificates.look(), CERTIFICATE_UNTIL.set)
            except SlacktideError as exc:
                self._report(str(exc))
                await asyncio.sleep(RETRY_S)

    async def _look(self, tls: Tls) -> None:
        try:
            tls.serve(await self._certificates.look())
        except SlacktideError as exc:
            self._report(str(exc))
        else:
            self._report("")

    def _report(self, why: str) -> None:
        if why and why != self.trouble:
            log.warning("cannot renew the enrolment's certificate", extra={"why": why})
        self.trouble = why

    async def _answer(self, token: str) -> Reply:
        """Refusals do not reveal the token; the reason is in this process's log."""
        try:
            enrolled = await self._issuer.enrol(token)
        except NotAnAgentError as exc:
            ENROLMENTS.labels("refused").inc()
            log.warning("refused an enrolment", extra={"why": str(exc)})
            return Reply(status=HTTPStatus.FORBIDDEN, body=str(exc).encode())
        except NoKeyError as exc:
            ENROLMENTS.labels("failed").inc()
            return Reply(status=HTTPStatus.SERVICE_UNAVAILABLE, body=str(exc).encode())
        except SlacktideError as exc:
            ENROLMENTS.labels("failed").inc()
            log.warning("cannot review a token", extra={"why": str(exc)})
            return Reply(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"the API server could not review the token")
        ENROLMENTS.labels("enrolled").inc()
        return Reply(status=HTTPStatus.OK, body=encode(enrolled))


async def follow(ring: Ring, look_s: float = LOOK_S) -> None:
    """Refresh the ring until cancelled."""
    logged = ""
    while True:
        try:
            await ring.look()
            logged = ""
        except SlacktideError as exc:
            if str(exc) != logged:
                log.warning("cannot read the cluster keys", extra={"why": str(exc)})
            logged = str(exc)
        await asyncio.sleep(look_s if ring.keys() else RETRY_S)


class PublishedBundle:
    """The ConfigMap with the CA bundle for enrolling agents, which the manifests create."""

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name

    async def read(self) -> dict[str, Any]:
        """Read the ConfigMap. Raises ApiError if the read failed."""
        found: dict[str, Any] = await self._api.get(CONFIGMAPS, self._name, dict[str, Any], namespace=self._namespace)
        return found

    async def have(self, read: dict[str, Any], bundle: bytes) -> bool:
        """Publish the bundle; False: the ConfigMap changed since it was read. Raises ApiError if the write failed."""
        text = bundle.decode()
        if (read.get("data") or {}).get(BUNDLE_KEY) == text:
            return True
        body = {"metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}, "data": {BUNDLE_KEY: text}}
        with IgnoreStatus(CONFLICT):
            await self._api.patch(CONFIGMAPS, self._name, body, dict[str, Any], namespace=self._namespace)
            return True
        return False


ENROLMENTS = Counter("slacktide_bridge_enrolments", "Requests of agents for a key, by result.", ["result"])
CERTIFICATE_UNTIL = Gauge(
    "slacktide_bridge_enrolment_certificate_expiry_timestamp_seconds",
    "Unix time at which the served certificate expires.",
)

for _result in ("enrolled", "refused", "failed"):
    ENROLMENTS.labels(_result)
