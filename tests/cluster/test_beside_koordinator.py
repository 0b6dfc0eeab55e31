"""Beside the real Koordinator: both webhooks on pods that nobody recorded, and both figures of the same NodeMetrics."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from slacktide.deploy.cli.calc.calculations import Calculation
from testbed.cluster.api_server import ApiServer
from testbed.cluster.koordinator_record import NodesRecording, PodsRecording, Reviewer, koordinator, koordinators
from testbed.cluster.real_koordinator import Manager
from testbed.cluster.webhook import Webhook, install
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
