"""The whole product on a real node, installed once for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.brokers import KafkaBroker, running
from testbed.cluster.installed import Installed
from testbed.cluster.real_node import RealNode


@pytest.fixture(scope="session")
def slacktide(real_node: RealNode) -> Iterator[Installed]:
    """Slacktide by its own manifests, and a Kafka of its own. Tests that name it carry ``realnode`` and ``kafka``."""
    with running(KafkaBroker) as kafka:
        installed = Installed(real_node, kafka)
        try:
            installed.start()
            yield installed
        finally:
            installed.stop()
