"""The whole product on a real node, installed once for all tests of the folder; figures are shown at the end."""

from collections.abc import Iterator

import pytest

from testbed.brokers import KafkaBroker, running
from testbed.cluster.installed import Installed
from testbed.cluster.real_node import RealNode

_figures = pytest.StashKey[list[str]]()


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


@pytest.fixture(scope="module")
def queueing(slacktide: Installed) -> Iterator[RealNode]:
    """The node with the job queue, too."""
    with slacktide.with_components("queue", "queue-crds"):
        yield slacktide.node


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the end of the run."""
    return request.config.stash.setdefault(_figures, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured, if anything was."""
    if lines := config.stash.get(_figures, []):
        terminalreporter.section("figures of the real node")
        for line in lines:
            terminalreporter.line(line)
