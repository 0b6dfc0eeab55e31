"""The entry point: exit codes, one clear message, and what help needs."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from slacktide.deploy.cli import main
from slacktide.deploy.cli.plugin import runs_in_cluster
from slacktide.schemas.errors import LogError
from testbed.vectors import each_row

SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))


def slacktide(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SLACKTIDE, *arguments], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", **env}
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Exception:
    """The command ``up`` raises it."""
    error = LogError("kafka-1:9092: nobody there")

    @click.command()
    def command() -> None:
        raise error

    monkeypatch.setattr(main.Commands, "get_command", lambda *_: command)
    return error


def test_what_is_raised_on_purpose_is_one_line_and_exit_code_1(failing: Exception) -> None:
    result = CliRunner().invoke(main.cli, ["up"])

    assert result.exit_code == 1
    assert result.stderr == "Error: kafka-1:9092: nobody there\n"


@pytest.mark.parametrize("how", [{"args": ["--debug", "up"]}, {"args": ["up"], "env": {"SLACKTIDE_DEBUG": "1"}}])
def test_debug_lets_the_error_through(failing: Exception, how: dict) -> None:
    assert CliRunner().invoke(main.cli, **how).exception is failing


def test_wrong_usage_is_exit_code_2() -> None:
    done = slacktide("topics", "plann")

    assert done.returncode == 2
    assert "plan" in done.stderr


def test_an_unreachable_broker_is_one_line_without_a_traceback() -> None:
    done = slacktide("topics", "plan", "--bootstrap", "127.0.0.1:1")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "check that the broker runs, and that --bootstrap can be reached from here" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_extra_is_named_with_the_line_that_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> None:
        raise ModuleNotFoundError("No module named 'faust'", name="faust")

    monkeypatch.setattr(main.Commands, "get_command", lambda *_: command)
    result = CliRunner().invoke(main.cli, ["stream"])

    assert result.exit_code == 1
    assert "pip install 'slacktide[stream]'" in result.stderr


def test_help_imports_no_command() -> None:
    """So it works, and fast, whatever is installed."""
    code = (
        "import sys; from slacktide.deploy.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name in {'aiokafka', 'rich', 'faust', 'slacktide.deploy.cli.up'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_output_into_a_pipe_that_closes_is_no_error() -> None:
    """As in ``slacktide topics list | head -1``."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [SLACKTIDE, "topics", "list", "--table"], stdout=closed, stderr=subprocess.PIPE, check=False
        )

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [("--help",), ("topics", "list", "--table"), ("calc", "--list")])
def test_output_onto_a_full_disk_is_told_in_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run([SLACKTIDE, *arguments], env=env, stdout=full, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, done.stderr) == (1, b"Error: output cannot be written: No space left on device\n")


@each_row("given", "meant")
def test_an_unknown_command_names_those_that_are_near(given: list[str], meant: str) -> None:
    done = CliRunner().invoke(main.cli, given)

    assert done.exit_code == 2
    assert f"no such command '{given[-1]}'; did you mean {meant}?" in done.stderr


@each_row("arguments", "in_cluster")
def test_kubectl_runs_in_the_cluster_what_reads_kafka_and_names_none(
    *, arguments: str, in_cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs_in_cluster(arguments.split()) is in_cluster
    monkeypatch.setenv("SLACKTIDE_BOOTSTRAP", "kafka:9092")
    assert not runs_in_cluster(arguments.split())


def test_without_a_cluster_the_plug_in_says_what_is_missing(tmp_path: Path) -> None:
    plugin = Path(SLACKTIDE).with_name("kubectl-slacktide")
    done = subprocess.run([plugin, "nodes"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: kubectl names no Deployment with the labels of Slacktide's stream processors")
