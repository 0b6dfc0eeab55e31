"""Beside the real Koordinator: both webhooks on pods that nobody recorded, and both figures of the same NodeMetrics."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from slacktide.deploy.cli.calc.calculations import Calculation
from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.koordinator_record import EXACT, NodesRecording, PodsRecording, Reviewer, koordinators
from testbed.cluster.real_koordinator import Manager
from testbed.cluster.real_koordinator import install as install_koordinator
from testbed.cluster.webhook import Webhook, install
from testbed.koordinator_pods import DIFFERENCES, difference

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.koordinator, pytest.mark.timeout(600)]

UNSEEN = range(5_000, 5_010)


@pytest.fixture(scope="module")
def both() -> Iterator[ApiServer]:
    """An API server with the manifests of both."""
    with running(ApiServer) as server:
        install(server)
        install_koordinator(server, EXACT)
        yield server


@pytest.fixture(scope="module")
def manager(both: ApiServer) -> Iterator[Manager]:
    started = Manager(both, qps=300)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def ours(both: ApiServer) -> Iterator[Webhook]:
    started = Webhook(both, both.folder)
    started.start()
    yield started
    started.stop()


def test_both_webhooks_make_the_same_of_500_pods_but_for_the_listed_differences(
    both: ApiServer, manager: Manager, ours: Webhook
) -> None:
    recording = PodsRecording(both, koordinators(manager), Reviewer(ours.url, "/mutate-pods"))
    unlisted, count = {}, 0
    for seed in UNSEEN:
        for _, pod, (theirs, own) in recording.run(seed):
            count += 1
            if (how := difference(pod, theirs, own)) and how not in DIFFERENCES:
                unlisted[pod["metadata"]["name"]] = how
    assert (unlisted, count) == ({}, 500)


def test_batch_resources_of_node_metrics_that_nobody_recorded_are_equal(both: ApiServer, manager: Manager) -> None:
    calculation = Calculation("batch_resource")
    differ = {}
    for case in NodesRecording(both).run(UNSEEN):
        answer = json.loads(calculation.answer(json.dumps(case)).line)
        if answer.get("output") != case["expected"]:
            differ[case["name"]] = answer, case["expected"]
    assert differ == {}
