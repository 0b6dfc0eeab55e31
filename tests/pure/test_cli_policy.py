"""``slacktide policy``: exit codes, tables and JSON as an operator meets them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import cli
from testbed.policies import config_map
from testbed.snapshots import cases, command_text, situations
from testbed.vectors import each_row

CASES = cases(__file__)

POLICY, NODE = CASES["what_lint_says_of_a_policy"]["valid, with what of it is in vain or not built"], CASES["node"]


def run(*arguments: object, given: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["policy", *map(str, arguments)], input=given)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    policy, node = tmp_path / "policy.yaml", tmp_path / "node.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    node.write_text(yaml.safe_dump(NODE))
    return policy, node


@situations("document", CASES["what_lint_says_of_a_policy"])
def test_what_lint_says_of_a_policy(tmp_path: Path, document: dict, snapshot) -> None:
    """A misspelt name fails unless leniency is asked for."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(document))
    strict, lenient = run("lint", policy), run("lint", policy, "--lenient")
    assert strict.output == strict.stdout + strict.stderr
    said = f"{command_text(strict, tmp_path)}\n\nlenient:\n{command_text(lenient, tmp_path)}"
    assert said == snapshot


def test_a_bridge_may_read_a_config_map_of_another_name(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(config_map() | {"metadata": {"name": "other"}}))

    assert run("lint", policy, "--name", "other").exit_code == 0


@pytest.mark.parametrize("content", [None, "{", "kind: Pod"], ids=["no file", "no YAML", "no ConfigMap"])
@pytest.mark.parametrize("command", ["lint", "effective"])
def test_what_is_no_policy_fails_without_a_traceback(
    command: str, content: str | None, files: tuple[Path, Path], tmp_path: Path
) -> None:
    policy = tmp_path / "other.yaml"
    if content is not None:
        policy.write_text(content)
    result = run(command, policy, *(("--node", files[1]) if command == "effective" else ()))

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert f"{policy}: " in result.output
    assert content is not None or f"{policy}: no such file\n" in result.output


@each_row("flags")
def test_what_holds_on_a_node_is_told(files: tuple[Path, Path], flags: list[str], snapshot) -> None:
    assert command_text(run("effective", files[0], "--node", files[1], *flags), files[0].parent) == snapshot


def test_a_node_may_come_in_a_list_of_several(files: tuple[Path, Path]) -> None:
    policy, node = files
    other = NODE | {"metadata": {"name": "node-2"}}
    node.write_text(json.dumps({"kind": "List", "items": [NODE, other]}))

    assert run("effective", policy, "--node", node, "--name", "node-2").output.startswith("node node-2, ")
    assert run("effective", policy, "--node", node).exit_code == 1


def test_what_is_wrong_with_the_node_is_told_by_its_own_path(files: tuple[Path, Path], snapshot) -> None:
    policy, node = files
    node.write_text(yaml.safe_dump(NODE | {"status": {"capacity": {"cpu": "many"}}}))
    assert command_text(run("effective", policy, "--node", node), node.parent) == snapshot


def test_a_node_may_come_from_kubectl_through_a_pipe(files: tuple[Path, Path]) -> None:
    policy, node = files
    command = [sys.executable, "-m", "slacktide.deploy.cli.main", "policy", "effective", policy, "--node", "-"]
    result = subprocess.run(command, input=node.read_bytes(), capture_output=True, check=True)

    assert result.stdout.startswith(b"node node-1, ")
