"""A recorded log of each released version, decided again by this version: every difference has a name."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.schemas.topics import COMMAND

RELEASED = Path(__file__).parents[1] / "replay/released"
LOGS = sorted(RELEASED.glob("*.jsonl.gz"))
NAMED: dict[str, dict[str, str]] = {"0.1.0": {}, "0.2.0": {}}
"""Of each version, the fields of bodies that this version decides otherwise, and why: as the changelog has it."""


def versions() -> list[str]:
    return [log.name.removesuffix(".jsonl.gz") for log in LOGS]


def test_each_released_version_has_a_log_and_names_for_its_differences() -> None:
    project = tomllib.loads((RELEASED.parents[2] / "pyproject.toml").read_text())["project"]

    assert versions() == sorted(NAMED)
    assert project["version"] in NAMED, "make one: tests/replay/make_golden.py VERSION"


@pytest.mark.parametrize("log", LOGS, ids=versions())
def test_a_released_log_is_decided_as_it_was_but_for_differences_with_a_name(log: Path) -> None:
    done = CliRunner().invoke(cli, ["replay", str(log), "--first", "1000000", "--output", "json"])
    said = json.loads(done.stdout)

    assert said["commands"]["equal"] > 100
    assert differences(said) == set(NAMED[log.name.removesuffix(".jsonl.gz")])


@pytest.mark.parametrize("log", LOGS, ids=versions())
def test_a_difference_without_a_name_is_found(log: Path, tmp_path: Path) -> None:
    lines = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if COMMAND.name.encode() in line[:60] and b'"be_cfs_quota_us":' in line)
    lines[at] = lines[at].replace(b'"be_cfs_quota_us":', b'"be_cfs_quota_us":1', 1)
    (tmp_path / "other.jsonl").write_bytes(b"".join(lines))
    done = CliRunner().invoke(cli, ["replay", str(tmp_path / "other.jsonl"), "--output", "json"])

    assert differences(json.loads(done.stdout)) == {"hold[0].limits.be_cfs_quota_us"}


def differences(said: dict[str, list[dict[str, list[dict[str, str]]]]]) -> set[str]:
    """Fields by their paths; a body that is not there, by the reason."""
    return {
        name
        for one in said["differences"]
        for name in ([field["path"] for field in one["fields"]] or [str(one["why"])])
    }
