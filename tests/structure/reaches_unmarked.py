"""Tests that reach what they carry no mark for, run by test_rungs.py alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.brokers import EmbeddedBroker, KafkaBroker, running
from testbed.cluster import real_node as bed
from testbed.cluster.metrics_server import MetricsServer
from testbed.guarded import GuardedKafka


@pytest.fixture
def own() -> Iterator[KafkaBroker]:
    with running(GuardedKafka) as broker:
        yield broker


@pytest.fixture
def above(own: KafkaBroker) -> str:
    return own.bootstrap


def two_calls_away() -> None:
    def inner() -> None:
        bed.running_node()

    inner()


def test_by_a_shared_fixture(kafka_broker: KafkaBroker) -> None:
    pass


def test_by_a_fixture_of_a_fixture(above: str) -> None:
    pass


def test_by_what_it_calls(tmp_path: Path) -> None:
    two_calls_away()


@pytest.mark.cluster
def test_with_the_mark_of_another_rung(real_node: bed.RealNode) -> None:
    pass


def test_by_a_part_beside_its_rung() -> None:
    assert MetricsServer.start


def test_that_reaches_none_of_it(embedded_broker: EmbeddedBroker) -> None:
    assert not isinstance(embedded_broker, str)
