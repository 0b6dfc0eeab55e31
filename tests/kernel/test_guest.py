"""The runners of other kernels, seen from outside: what comes out of them, and that nothing stays of them."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testbed.one_machine import eventually, is_gone

UML = pytest.param("cgroup2-vm", marks=pytest.mark.uml(inside=False), id="uml")
QEMU = pytest.param("cgroup2-qemu", marks=pytest.mark.qemu(inside=False), id="qemu")


def start(runner: str, script: str, folder: Path, stderr: int | None = None) -> subprocess.Popen:
    """A shell under that kernel; what the runner needs for itself is in the folder, too."""
    command = [sys.executable, Path(__file__).with_name(runner), "sh", "-c", script]
    given = os.environ | {"TMPDIR": str(folder), "GREETING": "hello"}
    return subprocess.Popen(command, env=given, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True)


@pytest.mark.parametrize("runner", [UML, QEMU])
def test_output_comes_as_it_is_printed_and_of_a_killed_run_nothing_stays(runner: str, tmp_path: Path) -> None:
    with start(runner, 'echo "$GREETING from $PWD"; sleep 600', tmp_path) as process:
        printed = process.stdout.readline()
        taken = psutil.Process(process.pid).children(recursive=True)
        process.kill()

    assert printed == f"hello from {tmp_path}\n"
    assert taken
    assert eventually(lambda: all(map(is_gone, taken)))
    assert eventually(lambda: not list(tmp_path.iterdir()))


@pytest.mark.parametrize("runner", [UML])
def test_the_exit_status_is_that_of_the_command_however_it_ends(runner: str, tmp_path: Path) -> None:
    with start(runner, "sleep 600 & echo done; kill -9 $$", tmp_path) as process:
        printed = process.stdout.read()

    assert (printed, process.returncode) == ("done\n", 137)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("runner", [UML])
def test_a_kernel_that_ends_before_the_command_is_told_from_a_command_that_fails(runner: str, tmp_path: Path) -> None:
    with start(runner, "echo o > /proc/sysrq-trigger; sleep 600", tmp_path) as process:
        process.wait()

    assert process.returncode == 125


@pytest.mark.parametrize("runner", [UML])
def test_whoever_ends_a_kernel_that_stands_still_is_told_what_it_said_last(runner: str, tmp_path: Path) -> None:
    script = "echo '<1>last words' > /dev/kmsg; echo there; sleep 600"
    with start(runner, script, tmp_path, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.terminate()
        said = process.stderr.read()

    assert "cgroup2-vm: told to end before the kernel did:" in said
    assert "last words" in said
    assert not list(tmp_path.iterdir())
