"""Beside the real Koordinator: both webhooks on pods that nobody recorded, and both figures of the same NodeMetrics."""

import json
from collections.abc import Iterator

import pytest

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.calc.calculations import Calculation
from testbed.cluster.api_server import ApiServer
from testbed.cluster.koordinator_record import (
    METRICS,
    NodesRecording,
    PodsRecording,
    Reviewer,
    koordinator,
    koordinators,
)
from testbed.cluster.manifests import MANIFESTS, SYSTEM, wrote
from testbed.cluster.real_koordinator import Manager
from testbed.cluster.webhook import Webhook, install
from testbed.koordinator_nodes import status_of
from testbed.koordinator_pods import DIFFERENCES, difference

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.koordinator, pytest.mark.timeout(600)]

UNSEEN = range(5_000, 5_010)


@pytest.fixture(scope="module")
def beside() -> Iterator[tuple[ApiServer, Manager]]:
    """Koordinator's webhooks, on an API server with the manifests of both."""
    with koordinator(webhooks=True) as (server, manager):
        install(server)
        yield server, manager


@pytest.fixture(scope="module")
def ours(beside: tuple[ApiServer, Manager]) -> Iterator[Webhook]:
    server, _ = beside
    started = Webhook(server, server.folder)
    started.start()
    yield started
    started.stop()


def test_both_webhooks_make_the_same_of_500_pods_but_for_the_listed_differences(
    beside: tuple[ApiServer, Manager], ours: Webhook
) -> None:
    server, manager = beside
    recording = PodsRecording(server, koordinators(manager), Reviewer(ours.url, "/mutate-pods"))
    unlisted, count = {}, 0
    for seed in UNSEEN:
        for _, pod, (theirs, own) in recording.run(seed):
            count += 1
            if (how := difference(pod, theirs, own)) and how not in DIFFERENCES:
                unlisted[pod["metadata"]["name"]] = how
    assert (unlisted, count) == ({}, 500)


def test_batch_resources_of_node_metrics_that_nobody_recorded_are_equal() -> None:
    calculation = Calculation("batch_resource")
    differ = {}
    with koordinator(webhooks=False) as (server, _):
        cases = NodesRecording(server).run(UNSEEN)
    for case in cases:
        answer = json.loads(calculation.answer(json.dumps(case)).line)
        if answer.get("output") != case["expected"]:
            differ[case["name"]] = answer, case["expected"]
    assert differ == {}


OURS, THEIRS = "ours", "theirs"


def test_with_the_overlay_koord_manager_writes_of_its_own_nodes_only() -> None:
    """It computes figures of all nodes, and is refused where the label says that Slacktide writes them."""
    with koordinator(webhooks=True) as (server, manager):
        server.kubectl("apply", "-k", str(MANIFESTS / "overlays/beside-koordinator"))
        server.node(OURS, labels={"colocation-agent": "slacktide"})
        server.node(THEIRS)
        bridge = server.account(SYSTEM, "slacktide-bridge")
        server.wait(lambda: "are Koordinator's" in wrote(server, bridge, THEIRS, "1"), "the policies are in force")
        assert wrote(server, bridge, OURS, "1100") == ""
        load = {"cpu_milli": 1_000, "memory_bytes": 1 << 30}
        metric = {"node_usage": load, "system_usage": load, "pod_metrics": [], "host_apps": []}
        for name in (OURS, THEIRS):
            server.wait(lambda: server.exists(f"{METRICS}/{name}"), f"the NodeMetric of {name}")  # noqa: B023
            status = status_of(metric, SystemClock().wall_ms() // 1000)
            server.patch(f"{METRICS}/{name}/status", {"status": status})

        server.wait(lambda: offered(server, THEIRS) not in {None, "1"}, "koord-manager writes of its own node")
        server.wait(lambda: REFUSED in manager.program.log.read_text(), "koord-manager is refused")
        assert offered(server, OURS) == "1100"


REFUSED = "batch and mid resources of node ours are Slacktide's: it has the label colocation-agent=slacktide"


def offered(server: ApiServer, node: str) -> str | None:
    return server.get(f"/api/v1/nodes/{node}")["status"]["allocatable"].get("kubernetes.io/batch-cpu")
