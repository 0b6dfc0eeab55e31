"""The demo's control groups on this machine's kernel: made as the kubelet makes them, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slacktide.deploy.demo import busy, join
from slacktide.deploy.demo.groups import KUBEPODS, OWN, Groups, NoGroupsError, PodGroup
from slacktide.deploy.runtime import child_process

MOUNT = Path("/sys/fs/cgroup")
SERVICE = PodGroup(uid="5e", tier="burstable", request_milli=1500)
BATCH = PodGroup(uid="ba", tier="besteffort")

pytestmark = [pytest.mark.demo, pytest.mark.kernel]


@pytest.fixture
def groups() -> Iterator[Groups]:
    """The demo's groups, opened for a machine of two CPUs."""
    opened = Groups(MOUNT)
    opened.open(2000)
    yield opened
    opened.close()


def left_behind() -> list[Path]:
    return [folder / OWN for folder in MOUNT.iterdir() if (folder / OWN).exists()]


def eventually(true: Callable[[], bool], within_s: float = 60.0) -> bool:
    until_s = time.monotonic() + within_s
    while not true() and time.monotonic() < until_s:
        time.sleep(0.02)
    return true()


def alive(pid: int) -> bool:
    """Running, not only a zombie that its parent has not looked at yet."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def members(groups: Groups, pod: PodGroup) -> set[int]:
    return {int(pid) for pid in groups.join_files(pod)[0].read_text().split()}


def test_weights_are_those_of_the_kubelet(groups):
    """The burstable tier weighs what its pods request, best-effort the least there is."""
    groups.make([SERVICE, BATCH], 2000)
    shares = {
        name: (MOUNT / "cpu" / KUBEPODS / name / "cpu.shares").read_text().strip()
        for name in ("", "burstable", "burstable/pod5e", "besteffort", "besteffort/podba")
    }

    assert shares == {
        "": "2048", "burstable": "1536", "burstable/pod5e": "1536", "besteffort": "2", "besteffort/podba": "2",
    }  # fmt: skip


def test_a_process_joins_every_hierarchy_before_it_runs_and_its_cpu_time_is_counted(groups):
    """No work escapes its group."""
    groups.make([BATCH], 2000)
    process = child_process.popen(join.command(busy.__name__, join=groups.join_files(BATCH)))

    assert eventually(lambda: groups.cpu_s(BATCH.path) > 0.2)
    assert all(process.pid in set(map(int, file.read_text().split())) for file in groups.join_files(BATCH))
    process.kill()
    process.wait()


def test_pods_that_are_not_wanted_any_more_are_ended_and_removed(groups):
    """Others keep their processes."""
    groups.make([SERVICE, BATCH], 2000)
    kept, ended = (
        child_process.popen(join.command(busy.__name__, join=groups.join_files(pod))) for pod in (SERVICE, BATCH)
    )
    assert eventually(lambda: kept.pid in members(groups, SERVICE) and ended.pid in members(groups, BATCH))

    groups.make([SERVICE], 2000)

    assert (kept.poll(), ended.wait(60)) == (None, -signal.SIGKILL)
    assert not (MOUNT / "cpu" / BATCH.path).exists()
    kept.kill()
    kept.wait()


def test_nothing_is_left_after_close(groups):
    """With processes still running in it."""
    groups.make([BATCH], 2000)
    process = child_process.popen(join.command(busy.__name__, join=groups.join_files(BATCH)))
    assert eventually(lambda: process.pid in members(groups, BATCH))

    groups.close()

    assert left_behind() == []
    assert process.wait(60) == -signal.SIGKILL


def test_two_demos_do_not_meet(groups):
    """The second would end the first one's processes."""
    with pytest.raises(NoGroupsError, match="another demo is running"):
        Groups(MOUNT).open(2000)
    assert left_behind()


CRASHES = """
import os, signal, sys
from pathlib import Path
from slacktide.deploy.runtime import child_process
from slacktide.deploy.demo import busy, join
from slacktide.deploy.demo.groups import Groups, PodGroup
groups = Groups(Path("/sys/fs/cgroup"))
groups.open(2000)
pod = PodGroup(uid="ba", tier="besteffort")
groups.make([pod], 2000)
child_process.popen(join.command(busy.__name__, join=groups.join_files(pod)))
while not (pids := groups.join_files(pod)[-1].read_text().split()):
    pass
print(pids[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_crashed_run_left_is_gone_at_the_next_start():
    """Its processes died with it; its groups, and strays in them, are removed."""
    crashed = subprocess.run([sys.executable, "-c", CRASHES], capture_output=True, text=True, check=False, timeout=60)
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    assert eventually(lambda: not alive(int(crashed.stdout)))
    assert left_behind()
    stray = subprocess.Popen([sys.executable, "-m", busy.__name__])
    file = MOUNT / "cpu" / BATCH.path / "main" / "cgroup.procs"
    file.write_text(str(stray.pid))
    groups = Groups(MOUNT)
    try:
        assert groups.open(2000) == 1
        assert stray.wait(60) == -signal.SIGKILL
        assert not (MOUNT / "cpu" / BATCH.path).exists()
        assert alive(os.getpid())
    finally:
        groups.close()
    assert left_behind() == []
