"""Processes that lose Kafka and are stopped: their logs name their reasons, and asyncio has nothing to add."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.brokers import KafkaBroker
from testbed.one_machine import VirtualNode
from testbed.parts import Part

pytestmark = pytest.mark.kafka
NOBODY_LOOKED = "never retrieved"
ANSWERED = "slacktide_agent_samples_sent_total"
TOLD_S = 60.0


@pytest.fixture
def parts(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[list[Part]]:
    """Each kind of part that needs no API server, at work."""
    kafka_broker.apply_topics(3)
    where = ["--bootstrap", kafka_broker.bootstrap]
    with VirtualNode(tmp_path) as node:
        known = ["--node-name", node.name, "--inventory", str(node.inventory), "--policy", str(node.policy)]
        named = {
            "publish": ["publish", *where, *known, "--state-folder", str(tmp_path / "publisher")],
            "stream": ["stream", *where, "--session-timeout", "3"],
            "queue": ["queue", "run", *where, "--session-timeout", "3"],
            "agent": ["agent", *where, *node.arguments, "--state-folder", str(tmp_path / "agent")],
        }
        found = [Part(name, tmp_path, arguments) for name, arguments in named.items()]
        for part in found:
            part.start()
        for part in found:
            part.wait_ready()
        found[-1].wait(lambda: found[-1].metric(ANSWERED) > 3, "samples are sent")
        yield found
        for part in found:
            part.kill()


def wait_for_trouble(parts: list[Part]) -> None:
    """Until each notices; the publisher, which has nothing to send, may take a minute."""
    for part in parts[1:]:
        part.wait(
            lambda part=part: not all(part.ask(page).startswith("200") for page in ("ready", "fresh")),
            f"{part.name} notices",
            TOLD_S,
        )


def end(parts: list[Part]) -> None:
    codes = {part.name: part.stop() for part in parts}
    unseen = {part.name: line for part in parts for line in part.log_text.splitlines() if NOBODY_LOOKED in line}

    assert (codes, unseen) == (dict.fromkeys(codes, 0), {})


def test_nobody_is_left_with_an_error_that_was_never_looked_at(kafka_broker: KafkaBroker, parts: list[Part]) -> None:
    """Kafka goes, comes back, and is away again as they are stopped."""
    kafka_broker.stop(signal.SIGKILL)
    wait_for_trouble(parts)
    kafka_broker.start()
    for part in parts:
        part.wait_ready()
    kafka_broker.stop(signal.SIGKILL)
    wait_for_trouble(parts)
    end(parts)


@pytest.mark.nightly
def test_nor_where_kafka_stands_still(kafka_broker: KafkaBroker, parts: list[Part]) -> None:
    """Requests are cut off in the middle: nobody refuses a connection."""
    os.kill(kafka_broker.pid, signal.SIGSTOP)
    try:
        wait_for_trouble(parts)
        end(parts)
    finally:
        kafka_broker.stop(signal.SIGKILL)  # one that goes on has no controller for a while
