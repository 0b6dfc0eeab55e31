"""The webhook's certificate turns without a restart, and without a moment in which the API server does not trust it."""

import asyncio
import base64
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slacktide.agents.cluster.certificates import Pair, Terms, made
from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook.webhook import WebhookSettings, names_of, run
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from testbed.brokers import free_port
from testbed.cluster.api_server import ApiServer
from testbed.cluster.identity import access_of
from testbed.cluster.webhook import CONFIGURATIONS, NAME, NAMESPACE, NOWHERE, SECRET, Webhook
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster

SERVICE = f"{NAME}.{NAMESPACE}.svc"
CONFIGURATION = f"{CONFIGURATIONS}/mutatingwebhookconfigurations/slacktide"
LIFE_MS, SETTLE_MS = 9_000, 1_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def settings(api: ApiServer, host: str, port: int, **given: object) -> WebhookSettings:
    config = api.account(NAMESPACE, NAME).kubeconfig
    policy = ConfigMapName(namespace="koordinator-system", name="slo-controller-config")
    fields = {"look_s": 0.2, "config_map": policy} | given
    return WebhookSettings(
        access=access_of(config), namespace=NAMESPACE, host=host, port=port, bootstrap=Cluster(NOWHERE), **fields
    )


@asynccontextmanager
async def replica(given: WebhookSettings) -> AsyncIterator[Health]:
    """A webhook in this process, ready."""
    stop, health = asyncio.Event(), Health()
    running = asyncio.create_task(run(given, stop, health, now_ms))
    try:
        await asyncio.to_thread(eventually, lambda: not health.not_ready or running.done())
        yield health
    finally:
        stop.set()
        await running


async def served(host: str, port: int, trusted: bytes) -> str:
    """Connect as an API server does that trusts this; gives the certificate.

    Raises:
        ssl.SSLError: it is not trusted.

    """
    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=SERVICE)
    try:
        return ssl.DER_cert_to_PEM_cert(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def bundle(api: ApiServer) -> bytes:
    """What API servers are told to trust."""
    return base64.b64decode(api.get(CONFIGURATION)["webhooks"][0]["clientConfig"].get("caBundle", ""))


def set_policy(api: ApiServer, failure_policy: str) -> None:
    change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": failure_policy}]
    api.request("PATCH", CONFIGURATION, change, kind="application/json-patch+json")  # type: ignore[arg-type]


def create(api: ApiServer, namespace: str, number: int) -> bool:
    """Whether a pod can be created, and is changed."""
    pod = {
        "metadata": {"name": f"dry-{number}", "labels": {"app-type": "batch"}},
        "spec": {"containers": [{"name": "main", "image": "localhost/busybox:1"}]},
    }
    made = api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    return made["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE"


async def test_it_turns_and_is_trusted_at_every_moment(admitting: ApiServer, webhook: Webhook, batch: str) -> None:
    """Two replicas share it; pods cannot be created here unless the webhook is asked."""
    webhook.stop()
    admitting.delete(SECRET)
    service = admitting.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")["spec"]
    host, other = service["clusterIP"], free_port()
    terms = Terms(names=names_of(NAMESPACE, host) | {"127.0.0.1"}, life_ms=LIFE_MS, settle_ms=SETTLE_MS)
    one = settings(admitting, host, 443, terms=terms)
    two = settings(admitting, "127.0.0.1", other, terms=terms)
    seen: list[set[str]] = [set(), set()]
    mutated: list[bool] = []
    async with replica(one), replica(two):
        await asyncio.sleep(SETTLE_MS / 1000)
        await asyncio.to_thread(set_policy, admitting, "Fail")
        try:
            until_s = time.monotonic() + 2.5 * LIFE_MS / 1000
            while time.monotonic() < until_s and min(len(found) for found in seen) < 2:
                trusted = await asyncio.to_thread(bundle, admitting)
                seen[0].add(await served(host, 443, trusted))
                seen[1].add(await served("127.0.0.1", other, trusted))
                mutated.append(await asyncio.to_thread(create, admitting, batch, len(mutated)))
        finally:
            await asyncio.to_thread(set_policy, admitting, "Ignore")
    admitting.delete(SECRET)

    assert [len(found) for found in seen] == [2, 2]
    assert seen[0] == seen[1]
    assert len(mutated) > 5
    assert all(mutated)


def write(folder: Path, pair: Pair) -> None:
    """As the kubelet changes a mounted Secret: all at once."""
    for name, text in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / f"{name}.new").write_bytes(text)
        (folder / f"{name}.new").rename(folder / name)


async def test_a_certificate_of_cert_manager_is_taken_as_it_changes(admitting: ApiServer, tmp_path: Path) -> None:
    names = frozenset({SERVICE})
    first, second = (made(names, common_name="cert-manager", now_ms=now_ms(), life_ms=LIFE_MS) for _ in range(2))
    before, port = admitting.get(CONFIGURATION)["metadata"]["resourceVersion"], free_port()
    write(tmp_path, first)
    async with replica(settings(admitting, "127.0.0.1", port, cert_folder=tmp_path)):
        then = await served("127.0.0.1", port, first.certificate)
        write(tmp_path, second)
        for _ in range(100):
            with contextlib.suppress(ssl.SSLError):
                if await served("127.0.0.1", port, second.certificate):
                    break
            await asyncio.sleep(0.1)
        now = await served("127.0.0.1", port, second.certificate)

    assert (then.encode(), now.encode()) == (first.certificate, second.certificate)
    assert admitting.get(CONFIGURATION)["metadata"]["resourceVersion"] == before, (
        "whom to trust is cert-manager's to say"
    )


async def test_a_configuration_that_lost_its_bundle_gets_it_back(admitting: ApiServer) -> None:
    """As after ``kubectl replace`` with the manifest."""
    async with replica(settings(admitting, "127.0.0.1", free_port())):
        trusted = await asyncio.to_thread(bundle, admitting)
        change = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        admitting.request("PATCH", CONFIGURATION, change, kind="application/json-patch+json")  # type: ignore[arg-type]
        back = await asyncio.to_thread(eventually, lambda: bundle(admitting))

    assert back
    assert trusted in back, "and what was served then is trusted still"
