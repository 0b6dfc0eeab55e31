"""The webhook: certificate, cluster cache, HTTPS server and the scan for missed pods."""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from slacktide.agents.cluster.certificates import CertificateManager, Clients, Pair, SecretPlace, Terms, Tls, in_folder
from slacktide.agents.cluster.request_bounds import served
from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook.answers import Answers
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.metrics import CERTIFICATE_UNTIL, CLIENTS
from slacktide.agents.cluster.webhook.missed import MissedPodScanner
from slacktide.agents.kubernetes.access import Access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, NOT_FOUND, IgnoreStatus, Resource
from slacktide.agents.listening import ANY
from slacktide.agents.publisher import Outbox
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.health import Health
from slacktide.schemas.text import OBJECT_BYTES_MAX
from slacktide.schemas.topics import MISSED_POD, POD_ADMISSION, REFUSED_POD
from slacktide.streams.tasks import ended, given_up

MUTATE_PODS, VALIDATE_EVICTIONS, CHECK_POLICY = "/mutate-pods", "/validate-evictions", "/check-policy"
QUESTION_BYTES_MAX = 24 * 1024 * 1024
"""An object of 3 MiB, in which the API server writes each ``<`` with six characters, and some more."""

_Answer = Callable[[bytes], Awaitable[bytes]]


class ClientCheck:
    """Which requests are answered: those with an accepted client certificate, or all if ``clients`` is None."""

    def __init__(self, clients: Clients | None) -> None:
        self.clients = clients
        self.trouble = ""
        """Requests were refused, and none was accepted: the API server presents no certificate."""
        self._accepted = False

    def refuse(self, request: web.Request) -> str:
        """Return why a request is refused; "": it is answered."""
        if self.clients is None:
            return ""
        refused = self.clients.refuse(request.get_extra_info("peercert"))
        CLIENTS.labels("refused" if refused else "accepted").inc()
        self._accepted |= not refused
        if self._accepted:
            self.trouble = ""
        elif not self.trouble:
            self.trouble = (
                f"no request had an accepted client certificate ({refused}): unless the API server presents one, it is "
                "not answered; see --client-ca"
            )
            log.warning("refused a request", extra={"why": refused, "from": request.remote})
        return refused


def serving(
    answers: Answers, tls: Tls, check: ClientCheck, host: str, port: int, *, leaving: asyncio.Event
) -> AbstractAsyncContextManager[int]:
    """Serve until left; yields the port.

    Once ``leaving`` is set, connections close after their response, so that clients use another replica.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    answering = {MUTATE_PODS: answers.mutate, VALIDATE_EVICTIONS: answers.fence, CHECK_POLICY: answers.check_policy}
    handlers = {path: partial(_handle, answer, check, leaving) for path, answer in answering.items()}
    return served(handlers, host, port, question_bytes_max=QUESTION_BYTES_MAX, tls=tls.context)


async def _handle(answer: _Answer, check: ClientCheck, leaving: asyncio.Event, request: web.Request) -> web.Response:
    refused = check.refuse(request)
    response = web.Response(status=403, text=refused) if refused else await _response(answer, request)
    if leaving.is_set():
        response.force_close()
    return response


async def _question(request: web.Request) -> bytes:
    """Read the body; of a longer one than anybody reads only its beginning, which names the request.

    An error would let a pod pass unread, over its namespace's quota too.
    """
    body, read_bytes = bytearray(), 0
    async for part in request.content.iter_any():
        read_bytes += len(part)
        if read_bytes > QUESTION_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(max_size=QUESTION_BYTES_MAX, actual_size=read_bytes)
        if len(body) <= OBJECT_BYTES_MAX:
            body += part
    return bytes(body)


async def _response(answer: _Answer, request: web.Request) -> web.Response:
    """On an error the webhook configuration's failurePolicy applies."""
    question = await _question(request)
    try:
        return web.Response(body=await answer(question), content_type="application/json")
    except SlacktideError as exc:
        log.error("cannot handle a request", extra={"path": request.path, "why": str(exc)})  # noqa: TRY400 - raised on purpose
        return web.Response(status=500, text=str(exc))
    except Exception:
        log.exception("cannot handle a request", extra={"path": request.path})
        return web.Response(status=500, text="internal error of the webhook; see its log")


log = logging.getLogger(__name__)

NAME = "slacktide-webhook"
SECRET = "slacktide-webhook-tls"  # noqa: S105 - its name
CONFIGURATION = "slacktide"
TOPICS = (MISSED_POD.name, REFUSED_POD.name, POD_ADMISSION.name)
SYSTEM_NAMESPACE = "kube-system"
DRAIN_S = 3.0
"""From SIGTERM until it stops listening: API servers and Services notice meanwhile."""
BEAT_S = 1.0
CONFIGURATIONS = tuple(
    Resource(group="admissionregistration.k8s.io", plural=plural)
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
_Json = dict[str, Any]
Configurations = dict[Resource, _Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Settings of the webhook."""

    access: Access
    namespace: str
    """Namespace of its Service and Secret."""
    host: str
    port: int
    bootstrap: Cluster
    config_map: ConfigMapName
    replica: str = NAME
    cert_folder: Path | None = None
    """With tls.crt and tls.key from another issuer; None: a self-signed certificate."""
    queue: bool = False
    """Pods that name a queue wait for it."""
    gangs: bool = False
    """Pods of gangs wait for all of their gang."""
    clients: Clients | None = None
    """None: all clients are allowed."""
    terms: Terms | None = None
    """Lifetime of self-signed certificates; None: the default, for the Service's names."""
    look_s: float = 10.0
    scan_s: float = 60.0


def names_of(namespace: str, host: str) -> frozenset[str]:
    """DNS names of the Service, and the address if it listens on a single one."""
    service = f"{NAME}.{namespace}.svc"
    return frozenset({service, f"{service}.cluster.local"} | ({host} - ANY))


async def run(settings: WebhookSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]) -> None:
    """Serve until ``stop`` is set."""
    async with ApiServer(settings.access, name=NAME) as api:
        await _Webhook(api, settings, health, now_ms).run(stop)


class _Webhook:
    def __init__(self, api: ApiServer, settings: WebhookSettings, health: Health, now_ms: Callable[[], int]) -> None:
        left_out = frozenset({settings.namespace, SYSTEM_NAMESPACE})
        self._outbox = Outbox(settings.bootstrap, TOPICS, now_ms, source="webhook")
        self._settings, self._health = settings, health
        self._cache = ClusterCache(api, settings.config_map)
        publish = self._outbox.put
        self._answers = Answers(
            api, self._cache, left_out, settings.config_map, publish, now_ms, queue=settings.queue, gangs=settings.gangs
        )
        self._scanner = MissedPodScanner(api, self._cache, left_out, publish, now_ms, replica=settings.replica)
        place = SecretPlace(namespace=settings.namespace, name=SECRET, component="webhook")
        terms = settings.terms or Terms(names=names_of(settings.namespace, settings.host))
        self._configurations = WebhookConfigurations(api, CONFIGURATION)
        self._certificates = CertificateManager(api, place, self._configurations, terms, now_ms)
        self._check = ClientCheck(settings.clients)
        self._certificate = self._seeking = ""

    async def _pair(self) -> Pair:
        folder = self._settings.cert_folder
        return await (self._certificates.look() if folder is None else asyncio.to_thread(in_folder, folder))

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set."""
        following = asyncio.create_task(self._cache.run())
        beside = [following]
        try:
            tls = await self._first_tls(stop)
            if tls is None:
                return
            host = self._settings.host
            async with serving(self._answers, tls, self._check, host, self._settings.port, leaving=stop) as port:
                log.info("serving", extra={"host": host, "port": port})
                beside += [
                    asyncio.create_task(work)
                    for work in (self._renew(tls), self._seek(), self._report(), self._outbox.run())
                ]
                stopping = asyncio.create_task(stop.wait())
                # Background tasks end only by an error.
                await asyncio.wait({stopping, *beside}, return_when=asyncio.FIRST_COMPLETED)
                given_up(stopping)
                if stop.is_set():
                    self._health.not_ready = "stopping"
                    await asyncio.sleep(DRAIN_S)
        finally:
            await ended(*beside)
            await self._outbox.close()
        for task in beside:
            if not task.cancelled():
                task.result()

    async def _first_tls(self, stop: asyncio.Event) -> Tls | None:
        """Wait for the first certificate; None: stopped before."""
        while not stop.is_set():
            try:
                return Tls(await self._pair(), CERTIFICATE_UNTIL.set, self._check.clients)
            except SlacktideError as exc:
                if self._health.not_ready != str(exc):
                    log.warning("no certificate yet", extra={"why": str(exc)})
                self._health.not_ready = str(exc)
                await asyncio.sleep(BEAT_S)
        return None

    async def _renew(self, tls: Tls) -> None:
        while True:
            await asyncio.sleep(self._settings.look_s)
            try:
                if tls.serve(await self._pair()):
                    log.info("serving a new certificate")
            except SlacktideError as exc:
                if not self._certificate:
                    log.warning("cannot check the certificate", extra={"why": str(exc)})
                self._certificate = str(exc)
            else:
                self._certificate = ""

    async def _seek(self) -> None:
        await self._cache.known()
        while True:
            try:
                if not self._cache.lacking:
                    await self._scanner.look()
            except SlacktideError as exc:
                if not self._seeking:
                    log.warning("cannot scan for missed pods", extra={"why": str(exc)})
                self._seeking = str(exc)
            else:
                self._seeking = ""
            await asyncio.sleep(self._settings.scan_s)

    async def _report(self) -> None:
        await self._cache.known()
        self._health.not_ready = ""
        while True:
            troubles = (
                self._cache.trouble,
                self._certificate,
                self._configurations.unasked,
                self._check.trouble,
                self._seeking,
                self._outbox.away,
            )
            self._health.not_fresh = "; ".join(why for why in troubles if why)
            self._cache.count()
            await asyncio.sleep(BEAT_S)


class WebhookConfigurations:
    """The mutating and the validating configuration of one name."""

    def __init__(self, api: ApiServer, name: str) -> None:
        self.unasked = ""
        """Which webhook the API server does not call, since its configuration is missing."""
        self._api, self._name = api, name

    async def read(self) -> Configurations:
        """Read the existing configurations."""
        found: Configurations = {}
        for resource in CONFIGURATIONS:
            with IgnoreStatus(NOT_FOUND):
                found[resource] = await self._api.get(resource, self._name, dict[str, Any])
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
            with IgnoreStatus(CONFLICT, NOT_FOUND):
                await self._api.patch(resource, self._name, body, dict[str, Any])
                log.info("updated the CA bundle of a webhook configuration", extra={"kind": resource.plural})
                continue
            return False
        return True
