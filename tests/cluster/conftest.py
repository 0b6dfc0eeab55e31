"""Fixtures of the tests on a real API server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from testbed.brokers import EmbeddedBroker, running
from testbed.cluster import queue_rig
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import BridgeRig
from testbed.cluster.jobs import job_controller
from testbed.cluster.manifests import applied as applied_to
from testbed.cluster.scheduler_rig import Scheduling, scheduling
from testbed.cluster.webhook import COLOCATED, CONFIGURATIONS, PROFILES, Webhook, install, until_asked


@pytest.fixture(scope="session")
def admitting() -> Iterator[ApiServer]:
    """An API server that asks the webhook, as the manifests install it, about every pod: not for other tests.

    The policy that looks at evictions before the webhook does is taken out: here the fence stands alone.
    """
    with running(ApiServer) as api:
        install(api)
        api.apply(PROFILES)
        api.delete(f"{CONFIGURATIONS}/validatingadmissionpolicybindings/slacktide-agent-evictions")
        yield api


@pytest.fixture(scope="session")
def _webhook(admitting: ApiServer) -> Iterator[Webhook]:
    webhook = Webhook(admitting, admitting.folder)
    yield webhook
    webhook.stop()


@pytest.fixture
def webhook(admitting: ApiServer, _webhook: Webhook) -> Webhook:
    """One replica, running and asked; a test may end it."""
    if not _webhook.process.running:
        _webhook.stop()
        _webhook.start()
        until_asked(admitting, admitting.namespace())
    return _webhook


@pytest.fixture
def batch(admitting: ApiServer) -> str:
    """A namespace that the profiles are for."""
    return admitting.namespace("batch", COLOCATED)


@pytest.fixture(scope="session")
def applied() -> Iterator[ApiServer]:
    """An API server on which the manifests were applied, and nothing of them runs: not for other tests."""
    with applied_to() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApiServer]:
    """The same for one file alone, whose tests may stop it."""
    with applied_to() as server:
        yield server


@pytest.fixture
async def rig(cluster: ApiServer, embedded_broker: EmbeddedBroker) -> AsyncIterator[BridgeRig]:
    """A bridge on it, with a broker behind."""
    embedded_broker.apply_topics(3)
    async with BridgeRig(cluster, embedded_broker.bootstrap).streaming() as rig:
        yield rig


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduling]:
    """A kube-scheduler that asks the extender, on an API server with the manifests."""
    with scheduling(tmp_path_factory.mktemp("applied")) as found:
        yield found


@pytest.fixture(scope="module")
def queueing(cluster: ApiServer) -> Iterator[ApiServer]:
    """An API server with the Job controller and Kueue's kinds."""
    queue_rig.install(cluster)
    with job_controller(cluster):
        yield cluster
