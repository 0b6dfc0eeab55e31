"""A cluster that has IPv6 alone: agent and worker reach Kafka and are reached themselves by it."""

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.schemas.command import NodeCommand
from slacktide.schemas.topics import COMMAND
from testbed.audit import records
from testbed.brokers import KafkaBroker, free_port, running
from testbed.hosts import Host
from testbed.one_machine import NODE, SLACKTIDE, VirtualNode, eventually

pytestmark = pytest.mark.kafka

START_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with running(lambda folder: KafkaBroker(folder, host=Host("[::1]"))) as broker:
        yield broker


def test_a_sample_is_answered_and_both_parts_are_ready(broker: KafkaBroker, tmp_path: Path) -> None:
    where = ["--bootstrap", broker.bootstrap]
    assert subprocess.run([SLACKTIDE, "topics", "apply", *where], check=False).returncode == 0
    ports = [free_port(), free_port()]
    with VirtualNode(tmp_path) as node:
        parts = {
            "stream": [],
            "agent": [*node.arguments, "--state-folder", str(tmp_path / "state")],
        }
        running_parts = [
            subprocess.Popen([SLACKTIDE, name, *where, "--metrics-host", "::1", "--metrics-port", str(port), *more])
            for (name, more), port in zip(parts.items(), ports, strict=True)
        ]
        try:
            assert eventually(lambda: records(broker.bootstrap, COMMAND, NodeCommand, NODE), START_S)
            for port in ports:
                with urllib.request.urlopen(f"http://[::1]:{port}/live", timeout=60) as answer:
                    assert answer.status == 200
        finally:
            for part in running_parts:
                part.terminate()
            for part in running_parts:
                part.wait(60)
