"""A stream worker on disk: it needs no folder that it may write to, and leaves none behind."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.parts import Part, running_part
from testbed.samples import keyframe
from testbed.stream_rig import Rig

READ_ONLY = "for each in /tmp /var/tmp; do mount --rbind $each $each; done; "
READ_ONLY += "for each in / /tmp /var/tmp; do mount -o remount,bind,ro $each || exit; done; "
READ_ONLY += 'touch "$TMPDIR/mine" 2>/dev/null && exit 1; cd "$PWD" && exec "$@"'
"""A mount namespace of its own is what a container with readOnlyRootFilesystem has. Others have mounts in /var/tmp."""


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A working directory, a home and a TMPDIR of the worker alone."""
    found = {name: tmp_path / name for name in ("work", "home", "temporary")}
    for folder in found.values():
        folder.mkdir()
    return found


@contextlib.contextmanager
def worker(rig: Rig, folders: dict[str, Path], *wrapped: str) -> Iterator[Part]:
    options = ["--bootstrap", rig.bootstrap, "--group", rig.group]
    place = ["env", "-C", str(folders["work"]), f"TMPDIR={folders['temporary']}", f"HOME={folders['home']}"]
    with running_part(folders["work"].parent, "stream", *options, prefix=[*place, *wrapped]) as part:
        yield part


async def test_a_killed_worker_leaves_no_folder(rig: Rig, folders: dict[str, Path]) -> None:
    with worker(rig, folders) as part:
        await rig.send(sent := [keyframe(1, "node-1")])
        [answer] = await rig.answered(sent, part)
        during = [path for folder in folders.values() for path in folder.rglob("*")]
        part.kill()

    assert answer.answer == "set"
    assert during == []
    assert [path for folder in folders.values() for path in folder.rglob("*")] == []


async def test_a_worker_runs_where_nothing_can_be_written(rig: Rig, folders: dict[str, Path]) -> None:
    wrapped = ("unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, "sh")
    with worker(rig, folders, *wrapped) as part:
        await rig.send(sent := [keyframe(1, "node-1")])
        [answer] = await rig.answered(sent, part)
        ended = part.stop()

    assert (answer.answer, ended) == ("set", 0)
