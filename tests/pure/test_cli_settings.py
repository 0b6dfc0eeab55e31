"""Settings of the command line: where a value comes from, what is refused, what help says."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import COMMANDS, cli
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.settings import configured, setting
from slacktide.deploy.runtime.text import show
from testbed.snapshots import command_text
from testbed.vectors import each_row

LONG_RUNNING = ("up", "agent", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeaSettings:
    leaf: str = setting("Which leaf.", default="oolong")
    steep_s: float = setting("How long, in seconds.", click.FloatRange(1, 600), default=180.0)
    strainer: Path | None = setting("Folder to strain through.", settings.folder(), default=None)  # noqa: RUF009
    sugar: bool = setting("With sugar.", default=False)


@click.command()
@configured(TeaSettings)
def tea(given: TeaSettings) -> None:
    """Make tea."""
    show(repr(given))


def made(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(tea, list(arguments), env=env)


def run(*arguments: str, **env: str | None) -> Result:
    return CliRunner().invoke(cli, list(arguments), env=env)


def every_command() -> Iterator[tuple[str, ...]]:
    """Names of all commands and subcommands, the group itself first."""
    yield ()
    for name in COMMANDS:
        yield (name,)
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, click.Group):
            yield from ((name, below) for below in command.commands)


def test_a_flag_wins_over_the_environment_and_that_over_the_default(snapshot) -> None:
    shown = made("--show-settings", "--leaf", "assam", SLACKTIDE_LEAF="sencha", SLACKTIDE_STEEP_S="60")
    assert command_text(shown) == snapshot


def test_showing_settings_does_nothing_else() -> None:
    assert "TeaSettings" not in made("--show-settings").output
    assert made("--sugar").output.strip() == repr(TeaSettings(sugar=True))


@each_row("given")
def test_a_refused_value_says_what_is_accepted(given: tuple[list[str], dict[str, str]], snapshot) -> None:
    arguments, env = given
    assert command_text(made(*arguments, **env)) == snapshot


@pytest.mark.parametrize("address", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:70000", "a:1,b"])
def test_what_cannot_be_a_broker_is_refused_before_anything_starts(address: str) -> None:
    result = run("topics", "plan", "--bootstrap", address)

    assert result.exit_code == 2
    assert "is not HOST:PORT" in result.output


@pytest.mark.parametrize("names", list(every_command()), ids=" ".join)
def test_help_of_every_command_has_an_example(names: tuple[str, ...]) -> None:
    result = run(*names, "--help")

    assert result.exit_code == 0, result.output
    assert f"Example: slacktide {' '.join(names)}".strip() in result.output


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_every_long_running_command_shows_its_settings_and_ends(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKTIDE_LOG_LEVEL", "warning")
    result = run(name, "--show-settings", "--metrics-port", "0")
    shown = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.output.splitlines()}

    assert result.exit_code == 0, result.output
    assert shown["metrics-port"] == ["0", "flag --metrics-port"]
    assert shown["log-level"] == ["warning", "environment SLACKTIDE_LOG_LEVEL"]
    assert shown["log-format"] == ["auto", "default"]


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_help_names_the_environment_variable_of_each_setting(name: str) -> None:
    """One rule for all: --metrics-port is SLACKTIDE_METRICS_PORT."""
    text = run(name, "--help").output

    for flag in ("--bootstrap", "--metrics-port", "--log-level"):
        assert settings.envvar(flag) in text


def test_state_lies_where_the_user_may_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert settings.state_folder() == tmp_path / "slacktide"

    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert settings.state_folder() == Path("/var/lib/slacktide")


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_report_that_could_not_be_written_is_said_before_the_demo_runs(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("demo", "--report", str(tmp_path / folder / "demo.json"))

    assert done.exit_code == 2
    assert f"'--report': {tmp_path / folder} is not a writable folder" in done.stderr
