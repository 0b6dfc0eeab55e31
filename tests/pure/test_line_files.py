"""Files from elsewhere: damaged, cut short, or far larger than they look."""

import gzip
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.streams.analysis.audit.chain import Chain

COMMANDS = [("audit", "verify"), ("replay",), ("savings",), ("assess", "--from")]


def export() -> bytes:
    chain = Chain()
    return b"".join([chain.first(), *(chain.line(record=number) for number in range(20_000)), chain.last()])


def damaged(how: str) -> bytes:
    whole = gzip.compress(export())
    if how == "cut":
        return whole[: len(whole) // 2]
    if how == "checksum":
        return whole[:-8] + b"\0\0\0\0" + whole[-4:]
    if how == "none":
        return b"not gzip"
    return gzip.compress(b"{" + b" " * (64 << 20), 1)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("how", ["cut", "checksum", "none", "one line of 64 MiB"])
def test_a_file_that_cannot_be_unpacked_is_named_with_its_reason(command: tuple[str, ...], how: str, tmp_path: Path):
    file = tmp_path / "f.jsonl.gz"
    file.write_bytes(damaged(how))
    done = CliRunner().invoke(cli, [*command, str(file)])

    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert f"Error: {file}" in done.output
    assert "Aborted" not in done.output


def test_what_verify_says_of_a_cut_file_and_of_many_wrong_lines(tmp_path: Path) -> None:
    cut, wrong = tmp_path / "cut.gz", tmp_path / "wrong.jsonl"
    cut.write_bytes(damaged("cut"))
    wrong.write_bytes(export() + b"\n" * 5_000)
    of_cut, of_wrong = (CliRunner().invoke(cli, ["audit", "verify", str(file)]).output for file in (cut, wrong))

    assert "cannot be unpacked: Compressed file ended before" in of_cut
    assert "and 4000 more" in of_wrong
    assert "5000 faults in 25002 lines" in of_wrong


def recording(value: str) -> bytes:
    asked = {"start_s": 1_800_000_000, "step_s": 300, "steps": 2, "node_label": "node"}
    names = ("cpu_capacity", "cpu_pods_used", "mem_capacity", "mem_pods_used")
    series = [{"metric": {"node": "n\x1b[2J"}, "values": [[1_800_000_000, value], [1_800_000_300, "1"]]}]
    answers = [{"name": name, "part": 1, "series": series} for name in names]
    lines = [{"format": "slacktide assess 1", "asked": asked}, *answers]
    return gzip.compress(b"".join(msgspec.json.encode(line) + b"\n" for line in lines) + b"end\n")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param("abc", "has the value 'abc'; accepted: a number", id="not a number"),
        pytest.param("9" * 5_000, "accepted: a number", id="too long"),
        pytest.param("1e999", "", id="infinite"),
        pytest.param("-1e308", "", id="far below zero"),
        pytest.param("NaN", "", id="unknown"),
    ],
)
def test_no_value_of_a_prometheus_gives_a_traceback(value: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.gz").write_bytes(recording(value))
    done = CliRunner().invoke(cli, ["assess", "--from", str(tmp_path / "r.gz")])

    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.exit_code == bool(says)
    assert says in done.output
    assert "\x1b" not in done.output
