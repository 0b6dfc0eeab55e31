"""`slacktide topics export` and `slacktide replay` on a live log, on both brokers."""

import concurrent.futures
import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.replay.source import ExportFileError, writing
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.topics import COMMAND, POLICY, SAMPLE
from testbed.brokers import free_port
from testbed.samples import SUPPRESS, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig, partition_of, until

NODES = ("node-1", "node-2", "node-3")
SAMPLES = [(keyframe if seq % 5 == 0 else sample)(seq, node) for seq in range(20) for node in NODES]


def slacktide(broker, *arguments: str) -> Result:
    """Call the command line, in a thread: it brings a loop of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(CliRunner().invoke, cli, [*arguments, "--bootstrap", broker.bootstrap]).result()


async def answered(broker, *forged: NodeCommand) -> None:
    """Samples of three nodes, each answered by a real worker; then what nobody decided."""
    broker.apply_topics(PARTITIONS)
    async with Rig(broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        async with rig.worker():
            await rig.send(SAMPLES)
            await until(lambda: len(rig.answers) == len(SAMPLES), "all are answered")
        await rig.put(COMMAND.name, [(one.node.encode(), encode(one), partition_of(one.node)) for one in forged])


async def test_a_live_log_and_its_export_replay_equal(broker, tmp_path: Path) -> None:
    """The file says what the log says, in order of time, each partition in order of offsets."""
    await answered(broker)
    live = slacktide(broker, "replay", "--output", "json")
    said = json.loads(live.stdout)
    assert (live.exit_code, said["commands"]["equal"], said["samples"]) == (0, len(SAMPLES), len(SAMPLES))

    exported = slacktide(broker, "topics", "export", str(tmp_path / "all.jsonl.gz"))
    assert exported.exit_code == 0, exported.output
    file = CliRunner().invoke(cli, ["replay", str(tmp_path / "all.jsonl.gz"), "--output", "json"])
    assert (file.exit_code, json.loads(file.stdout)["commands"]) == (0, said["commands"])

    _, *records, end = map(json.loads, gzip.decompress((tmp_path / "all.jsonl.gz").read_bytes()).splitlines())
    assert end == {"records": len(records)}
    assert records[0]["topic"] == POLICY.name
    offsets: dict[tuple[str, int], int] = {}
    for record in records:
        place = record["topic"], record["partition"]
        assert record["offset"] > offsets.get(place, -1)
        offsets[place] = record["offset"]
    times = [record["timestamp_ms"] for record in records if record["topic"] != POLICY.name]
    assert times == sorted(times)


async def test_what_nobody_decided_is_found_in_a_live_log(embedded_broker) -> None:
    forged = NodeCommand(
        id="0123456789abcdef", node="node-2", boot_id=SAMPLES[0].boot_id, seq=7, observed_ms=SAMPLES[0].observed_ms,
        policy_version=SUPPRESS.version, facts_revision="", pods_revision="", answer="keep",
    )  # fmt: skip
    await answered(embedded_broker, forged)
    done = slacktide(embedded_broker, "replay")

    assert done.exit_code == 1
    assert "node-2: another answer than the replay's" in done.stdout
    assert '    id: recorded "0123456789abcdef", replayed ' in done.stdout


async def test_one_topic_can_be_exported(embedded_broker, tmp_path: Path) -> None:
    await answered(embedded_broker)
    done = slacktide(embedded_broker, "topics", "export", str(tmp_path / "c.jsonl"), *("--topic", "command") * 2)
    assert done.stdout.count(COMMAND.name) == 1
    _, *records, _ = (tmp_path / "c.jsonl").read_bytes().splitlines()

    assert done.exit_code == 0, done.output
    assert {json.loads(record)["topic"] for record in records} == {COMMAND.name}
    assert len({decode(json.dumps(json.loads(record)["body"]).encode(), NodeCommand).id for record in records}) == 60
    again = CliRunner().invoke(cli, ["replay", str(tmp_path / "c.jsonl")])
    assert (again.exit_code, again.stdout) == (1, "no samples in the span: nothing to replay\n")


async def test_a_span_before_anything_was_said_is_empty(broker, tmp_path: Path) -> None:
    await answered(broker)
    done = slacktide(broker, "topics", "export", str(tmp_path / "old.jsonl"), "--until", "1h", "--topic", SAMPLE.name)

    assert done.exit_code == 0, done.output
    assert "0 records" in done.stdout


@pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])
def test_an_export_that_fails_leaves_the_file_that_was_there(name: str, tmp_path: Path) -> None:
    """Nobody answers: an earlier export must outlive that."""
    file = tmp_path / name
    file.write_text("of yesterday")
    done = CliRunner().invoke(cli, ["topics", "export", str(file), "--bootstrap", f"127.0.0.1:{free_port()}"])

    assert done.exit_code == 1
    assert file.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_told_with_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ExportFileError, match=r"no/day\.jsonl: No such"), writing(tmp_path / "no" / "day.jsonl"):
        pass


def test_a_full_disk_is_told_with_the_file() -> None:
    with pytest.raises(ExportFileError, match="/dev/full: No space left on device"), writing(Path("/dev/full")) as out:
        out.write(b"x")
