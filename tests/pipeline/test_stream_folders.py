"""A stream worker on disk: it needs no folder that it may write to, and leaves none behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.one_machine import SLACKTIDE
from testbed.samples import keyframe
from testbed.stream_rig import Rig, Shell

READ_ONLY = "for each in /tmp /var/tmp; do mount --bind $each $each; done; "
READ_ONLY += "for each in / /tmp /var/tmp; do mount -o remount,bind,ro $each || exit; done; "
READ_ONLY += 'touch "$TMPDIR/mine" 2>/dev/null && exit 1; cd "$PWD" && exec "$@"'
"""A mount namespace of its own is what a container with readOnlyRootFilesystem has."""


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A working directory, a home and a TMPDIR of the worker alone."""
    found = {name: tmp_path / name for name in ("work", "home", "temporary")}
    for folder in found.values():
        folder.mkdir()
    return found


def started(rig: Rig, shell: Shell, folders: dict[str, Path], *wrapped: str) -> subprocess.Popen[bytes]:
    options = ["--bootstrap", rig.bootstrap, "--group", rig.group, "--shell", shell]
    env = os.environ | {"TMPDIR": str(folders["temporary"]), "HOME": str(folders["home"])}
    return subprocess.Popen([*wrapped, SLACKTIDE, "stream", *options], cwd=folders["work"], env=env)


async def test_a_killed_worker_leaves_no_folder(rig: Rig, shell: Shell, folders: dict[str, Path]) -> None:
    worker = started(rig, shell, folders)
    try:
        await rig.send(sent := [keyframe(1, "node-1")])
        [answer] = await rig.answered(sent)
        during = [path for folder in folders.values() for path in folder.rglob("*")]
    finally:
        worker.kill()
        worker.wait()

    assert answer.answer == "set"
    assert during == []
    assert [path for folder in folders.values() for path in folder.rglob("*")] == []


async def test_a_worker_runs_where_nothing_can_be_written(rig: Rig, shell: Shell, folders: dict[str, Path]) -> None:
    worker = started(rig, shell, folders, "unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, "sh")
    try:
        await rig.send(sent := [keyframe(1, "node-1")])
        [answer] = await rig.answered(sent)
        worker.terminate()
        ended = worker.wait(15)
    finally:
        worker.kill()
        worker.wait()

    assert (answer.answer, ended) == ("set", 0)
