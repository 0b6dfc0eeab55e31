"""docs/reading-the-topics.md: each command works as written, each record and field in it is one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.topics import BY_NAME, TOPICS
from testbed.brokers import KafkaBroker
from testbed.one_machine import Up, VirtualNode, eventually, policy

PAGE = (Path(__file__).parents[2] / "docs/reading-the-topics.md").read_text()
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n### ")[1:]}
PATIENCE_S = 60.0
SILENT = r"slacktide\.(node\.window|node\.sample\.v2 |pod|gang|reservation|cluster|queue|job|service)"
GIB = 1 << 30


def commands() -> list[str]:
    """Indented and behind a dollar; a line that ends in a pipe goes on."""
    return [found[1].replace("\n", " ") for found in re.finditer(r"^    \$ ((?:.*\|\n)*.*)$", PAGE, re.MULTILINE)]


def run(command: str, bootstrap: str) -> subprocess.CompletedProcess[str]:
    """As a reader would, with the environment that the page asks for."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "KAFKA": bootstrap, "SLACKTIDE_BOOTSTRAP": bootstrap}
    shell = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(shell, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


WAITED_FOR = (
    ("slacktide.node.outcome.v1", '"spent"'),
    ("slacktide.eviction.credit.v1", '"granted"'),
    ("slacktide.dead-letter.v1", '"nobody"'),
    ("slacktide.node.score.v1", '"batch_left"'),
)
"""Until all of it is said, some command would have nothing to say."""


def holds(bootstrap: str, topic: str, what: str) -> bool:
    return run(f"kcat -b $KAFKA -C -t {topic} -o beginning -e -q | grep -c '{what}'", bootstrap).returncode == 0


@pytest.fixture
def filled_broker(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[str]:
    """Apache Kafka as a running stack fills it: a limit, an eviction that is wanted, a record that is none."""
    (tmp_path / "node").mkdir()
    with VirtualNode(tmp_path / "node") as node:
        node.policy.write_text(json.dumps(policy(memoryEvictThresholdPercent=60, memoryEvictLowerPercent=55)))
        given = [*node.arguments, "--policy", str(node.policy), "--bootstrap", kafka_broker.bootstrap]
        with Up(tmp_path, *given) as up:
            up.wait_logged("first applied decision", within_s=PATIENCE_S)
            node.machine.pods["uid-batch-0"].mem_bytes = 22 * GIB
            poison = "echo oops | kcat -b $KAFKA -P -t slacktide.node.sample.v2 -k nobody"
            assert run(poison, kafka_broker.bootstrap).returncode == 0
            said = partial(holds, kafka_broker.bootstrap)
            with ThreadPoolExecutor() as threads:
                assert all(
                    threads.map(lambda one: eventually(partial(said, *one), PATIENCE_S, every_s=0.5), WAITED_FOR)
                )
            yield kafka_broker.bootstrap


@pytest.mark.kafka
@pytest.mark.kcat
def test_every_command_on_the_page_works_and_prints_something(filled_broker: str) -> None:
    """But for minutes written down, of which there are none in a test's first one, and what a cluster's parts say.

    And for samples in columns: agents write them only where they are configured to.
    """
    asked = commands()
    assert len(asked) > 20
    with ThreadPoolExecutor() as threads:
        for command, done in zip(asked, threads.map(partial(run, bootstrap=filled_broker), asked), strict=True):
            assert done.returncode == 0, (command, done.stderr)
            assert done.stdout.strip() or re.search(SILENT, command), command


def test_every_topic_has_its_section_or_is_named_beside_its_twin() -> None:
    assert {topic.name for topic in TOPICS if topic.name not in SECTIONS} == {
        "slacktide.node.sample.backfill.v2",
        "slacktide.node.command.shadow.v1",
        "slacktide.node.allocatable.shadow.v1",
        "slacktide.node.zones.v1",
        "slacktide.node.forecast.v1",
        "slacktide.audit.v1",
    }
    assert all(f"`{topic.name}`" in PAGE for topic in TOPICS if topic.name not in SECTIONS)


@pytest.mark.parametrize("name", SECTIONS)
def test_what_is_shown_of_a_topic_is_a_record_of_it_and_its_fields_are_described(name: str) -> None:
    section, kind = SECTIONS[name], BY_NAME[name].message
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}
    assert told
    assert told <= known

    if name != "slacktide.node.window.v1":  # sixty of each figure: too long to be shown
        shown = section.partition("```json\n")[2].partition("```")[0]
        assert json.loads(encode(decode(shown.encode(), kind))) == json.loads(shown)
