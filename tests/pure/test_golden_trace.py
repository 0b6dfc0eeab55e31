"""Minutes that were really lived, decided again: tests/replay/make_golden.py says what is in them."""

import gzip
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import cli
from slacktide.schemas.topics import COMMAND
from testbed.vectors import each_row

GOLDEN = Path(__file__).parents[1] / "replay" / "golden.jsonl.gz"


def replay(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", str(file), *arguments])


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return gzip.decompress(GOLDEN.read_bytes()).splitlines(keepends=True)


def test_what_was_recorded_is_decided_again() -> None:
    """Suppressions, evictions, a change of policy, a worker's death and its successor: nothing differs."""
    done = replay(GOLDEN, "--output", "json")
    said = json.loads(done.stdout)

    assert (done.exit_code, said["differences"]) == (0, [])
    assert said["commands"]["equal"] > 150
    assert (said["nodes"], said["policies"], said["takeovers"] > 0, said["by_guard"] > 0) == (3, 2, True, True)


def test_a_file_is_meant_where_the_environment_says_where_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does in every container of a part."""
    monkeypatch.setenv("SLACKTIDE_BOOTSTRAP", "127.0.0.1:1")

    assert replay(GOLDEN).exit_code == 0
    assert replay(GOLDEN, "--bootstrap", "127.0.0.1:1").exit_code == 2


def test_there_is_something_in_it(lines: list[bytes]) -> None:
    commands = [line for line in lines if COMMAND.name.encode() in line[:60]]

    assert any(b'"evict":[{' in line for line in commands)
    assert sum(b'"hold":[{' in line for line in commands) > 20


def test_a_record_that_was_changed_is_found(lines: list[bytes], tmp_path: Path) -> None:
    """One quota in one answer: told with the record's place, the field, both values; exit code 1."""
    at = next(n for n, line in enumerate(lines) if COMMAND.name.encode() in line[:60] and b'"be_cfs_quota_us":' in line)
    forged = re.sub(rb'"be_cfs_quota_us":\d+', b'"be_cfs_quota_us":4242', lines[at], count=1)
    (tmp_path / "forged.jsonl").write_bytes(b"".join([*lines[:at], forged, *lines[at + 1 :]]))
    record = json.loads(forged)

    done = replay(tmp_path / "forged.jsonl")

    assert done.exit_code == 1
    assert f"another answer than the replay's ({COMMAND.name} {record['partition']}:{record['offset']})" in done.stdout
    assert "    hold[0].limits.be_cfs_quota_us: recorded 4242, replayed " in done.stdout
    assert done.stdout.endswith("\n1 difference\n")


def test_one_node_can_be_replayed() -> None:
    done = replay(GOLDEN, "--node", "virtual-2", "--output", "json")

    assert (done.exit_code, json.loads(done.stdout)["nodes"]) == (0, 1)


def test_a_part_of_it_can_be_replayed() -> None:
    """The last half minute: pods are learned from what stands before."""
    said = json.loads(replay(GOLDEN, "--since", "30s", "--output", "json").stdout)

    assert 0 < said["samples"] < 100
    assert said["differences"] == []


POLICY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config}
data:
  resource-threshold-config: '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", %s}}'
"""


def test_a_tighter_policy_takes_from_batch_work(tmp_path: Path) -> None:
    """At 20% of the node, less is allowed on each; at 95%, more; and a memory threshold of 99% evicts nobody."""
    changes = {}
    for name, said in (("tight", '"cpuSuppressThresholdPercent": 20'), ("loose", '"cpuSuppressThresholdPercent": 95')):
        (tmp_path / name).write_text(POLICY % f'{said}, "memoryEvictThresholdPercent": 99')
        done = replay(GOLDEN, "--policy", str(tmp_path / name), "--output", "json")
        assert done.exit_code == 0, done.output
        changes[name] = json.loads(done.stdout)

    for tight, loose in zip(changes["tight"]["nodes"], changes["loose"]["nodes"], strict=True):
        assert tight["other"]["allowed_core_h"] < tight["recorded"]["allowed_core_h"] < loose["other"]["allowed_core_h"]
    evicted = [change["all"]["evictions_fewer"] for change in changes.values()]
    assert evicted[0] == evicted[1] != []


def test_what_if_is_told_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY % '"cpuSuppressThresholdPercent": 20')
    done = replay(GOLDEN, "--policy", str(tmp_path / "p.yaml"))

    assert [line.split()[0] for line in done.stdout.splitlines()[1:6]] == [
        "NODE", "virtual-1", "virtual-2", "virtual-3", "all",
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, lines: list[bytes]) -> None:
    (tmp_path / "cut.jsonl.gz").write_bytes(GOLDEN.read_bytes()[:9_000])
    (tmp_path / "short.jsonl").write_bytes(b"".join(lines[:50]))

    assert "no.jsonl: No such file or directory" in replay(tmp_path / "no.jsonl").stderr
    assert "cut.jsonl.gz: cannot be unpacked" in replay(tmp_path / "cut.jsonl.gz").stderr
    assert "short.jsonl, line 50: the last line is missing" in replay(tmp_path / "short.jsonl").stderr


@each_row("span")
def test_a_span_that_ends_before_it_begins_is_wrong_usage(span: tuple[str, ...]) -> None:
    assert replay(GOLDEN, *span).exit_code == 2


def test_a_policy_that_decided_nothing_changed_nothing_known(tmp_path: Path) -> None:
    """Of a span without samples, say: that must not pass for harmless."""
    (tmp_path / "p.yaml").write_text(POLICY % '"cpuSuppressThresholdPercent": 20')
    done = replay(GOLDEN, "--policy", str(tmp_path / "p.yaml"), "--since", "1ms")

    assert (done.exit_code, done.stdout) == (1, "no samples in the span: nothing to decide\n")


@pytest.mark.parametrize("nodes", [["virtual-4"], ["virtual-2", "virtual-4"]])
def test_a_node_that_is_not_in_the_trace_is_told_with_those_that_are(nodes: list[str]) -> None:
    done = replay(GOLDEN, *(part for node in nodes for part in ("--node", node)))

    assert done.exit_code == 1
    assert done.stderr.endswith("is from node virtual-4; known: virtual-3, virtual-2, virtual-1\n")


def test_a_policy_that_is_not_there_is_told_with_its_file(tmp_path: Path) -> None:
    done = replay(GOLDEN, "--policy", str(tmp_path / "p.yaml"))

    assert (done.exit_code, "p.yaml: no such file" in done.stderr) == (1, True)


def test_a_file_or_a_log_but_not_both() -> None:
    both = replay(GOLDEN, "--bootstrap", "127.0.0.1:9")

    assert (both.exit_code, CliRunner().invoke(cli, ["replay"]).exit_code) == (2, 2)
