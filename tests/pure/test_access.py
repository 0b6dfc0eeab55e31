"""The table of who may do what: it names what the code of each part names, and no more."""

import ast
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.schemas import topics
from slacktide.schemas.access import (
    AGENT,
    BRIDGE,
    CONSOLE,
    PARTS,
    PUBLISHER,
    QUEUE,
    READER,
    REPLAYER,
    SCHEDULER,
    SLI,
    STREAM,
    WEBHOOK,
    Part,
)
from slacktide.schemas.topics import BY_NAME, COMMAND, DEAD_LETTER, TOPICS, Topic

ROOT = Path(__file__).parents[2]
NOT_OF_A_WORKER = ("analysis", "queue")
"""It looks at the log afterwards, as a reader; or decides for the queue."""


def python(*places: str) -> list[Path]:
    found = [ROOT / place for place in places]
    return [file for place in found for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]


def worker() -> list[Path]:
    root = ROOT / "streams"
    found = [path for path in python("streams") if path.relative_to(root).parts[0] not in NOT_OF_A_WORKER]
    return [path for path in found if path not in queue()]


def queue() -> list[Path]:
    return [*python("streams/queue", "agents/credit_account.py"), *(ROOT / "streams" / "engine").glob("queue*.py")]


def bridge() -> list[Path]:
    folders = ("bridge", "descheduler", "queue", "reservation")
    return python(*(f"agents/cluster/{name}" for name in folders), "agents/publisher.py")


def named_in(files: Iterable[Path]) -> set[str]:
    """The topics whose constants these modules import."""
    imported = {
        alias.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "slacktide.schemas.topics"
        for alias in node.names
    }
    named = [getattr(topics, name) for name in imported if name != "TOPICS"]
    rows = [row for one in named for row in (one if isinstance(one, tuple) else (one,))]
    return {row.name for row in rows if isinstance(row, Topic)}


@pytest.mark.parametrize(
    ("part", "files"),
    [
        pytest.param(AGENT, python("agents/node", "streams/kafka/node_reader.py"), id="agent"),
        pytest.param(STREAM, worker(), id="stream"),
        pytest.param(
            PUBLISHER,
            python("agents/publisher.py", "deploy/cli/log_side.py", "deploy/cli/queue/topics.py"),
            id="publisher",
        ),
        pytest.param(BRIDGE, bridge(), id="bridge"),
        pytest.param(WEBHOOK, python("agents/cluster/webhook"), id="webhook"),
        pytest.param(SCHEDULER, python("agents/cluster/scheduler"), id="scheduler"),
        pytest.param(QUEUE, queue(), id="queue"),
        pytest.param(SLI, python("agents/sli"), id="sli"),
        pytest.param(CONSOLE, python("deploy/console"), id="console"),
    ],
)
def test_a_part_may_touch_the_topics_that_its_code_names_and_no_others(part: Part, files: list[Path]) -> None:
    assert {topic.name for topic in (*part.reads, *part.writes)} == named_in(files)


def test_each_role_in_the_table_of_topics_is_one_parts() -> None:
    """A producer or consumer that no part stands for would be locked out. An operator is a reader."""
    named = {role for topic in TOPICS for role in (*topic.producers, *topic.consumers)}
    roles = [role for part in PARTS for role in part.roles]

    assert sorted(roles) == sorted(named - {"operator"})
    assert set(READER.reads) == set(TOPICS)


def test_only_workers_command_and_only_agents_report() -> None:
    """But for who puts records back, who is let in for an hour."""
    writers = {topic.name: {part.name for part in PARTS if topic in part.writes} - {REPLAYER.name} for topic in TOPICS}

    assert writers[COMMAND.name] == {"stream"}
    assert [name for name, who in writers.items() if who == {"agent"}] == [
        topics.SAMPLE.name,
        topics.BACKFILL.name,
        topics.ZONES.name,
        topics.FORECAST.name,
        topics.SERVICE_MINUTE.name,
    ]
    assert writers[topics.OUTCOME.name] == {"agent", "bridge", "queue"}, "who evicts tells of it"
    assert writers[DEAD_LETTER.name] == {"agent", "stream", "publisher", "bridge", "scheduler", "queue"}
    assert not [part.name for part in PARTS if DEAD_LETTER in part.writes and part is REPLAYER]


def test_no_right_is_there_twice_nor_said_where_another_brings_it() -> None:
    for part in PARTS:
        assert len(set(part.acls)) == len(part.acls)
        brought = {acl.name for acl in part.acls if acl.operation in {"Read", "Write"}}
        silly = [acl for acl in part.acls if acl.operation == "Describe" and acl.name in brought]
        assert silly == [], part.name


def test_it_prints_commands_or_json_of_the_parts_that_are_asked_for(snapshot) -> None:
    def said(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["topics", "acl", *arguments], env={"SLACKTIDE_BOOTSTRAP": None})
        assert done.exit_code == 0, done.output
        return done.stdout

    assert said("agent", "--bootstrap", "kafka-1:9092") == snapshot
    told = json.loads(said("--output", "json"))
    assert [part["part"] for part in told] == [part.name for part in PARTS]
    assert told[0]["acls"][0] == {"operation": "Read", "resource": "topic", "name": "slacktide.node.inventory.v1"}
    assert {acl["name"] for part in told for acl in part["acls"] if acl["resource"] == "topic"} == set(BY_NAME)
