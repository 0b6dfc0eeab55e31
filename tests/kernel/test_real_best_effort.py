"""Real processes of best-effort pods: asked to end, killed, stopped, and nobody else ever."""

import os
import signal
import time
from pathlib import Path

import pytest

from kernel.groups import BUSY, CONTAINER, Groups, used_ticks
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.best_effort import CgroupBestEffort
from slacktide.schemas.errors import CgroupError
from testbed.one_machine import eventually

UID = "6a0e-11aa"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\n{BUSY}"
BREEDING = """import os, time
signal = __import__("signal")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
"""Each moment another process: who reads its pid finds it gone."""


@pytest.fixture
def pod(groups: Groups) -> str:
    """A best-effort pod's group."""
    return groups.add_pod("besteffort", UID)


@pytest.fixture
def pods(kernel: CgroupKernel) -> CgroupBestEffort:
    return kernel.best_effort


def ready(process):
    """The process, once it has printed a line."""
    process.stdout.readline()
    return process


def stands_still(process) -> bool:
    before = used_ticks(process)
    time.sleep(0.15)
    return used_ticks(process) == before


def goes_on(process) -> bool:
    before = used_ticks(process)
    return eventually(lambda: used_ticks(process) > before)


def test_a_pod_ends_when_it_is_asked_to(groups, pods, pod) -> None:
    processes = [groups.start(pod) for _ in range(3)]
    before = pods.processes(UID)
    pods.terminate(UID)

    assert [process.wait(60) for process in processes] == [-signal.SIGTERM] * 3
    assert (before, pods.processes(UID)) == (3, 0)


def test_one_that_does_not_listen_is_killed(groups, pods, pod) -> None:
    process = ready(groups.start(pod, DEAF))
    pods.terminate(UID)
    time.sleep(0.1)
    assert process.poll() is None
    pods.kill(UID)

    assert process.wait(60) == -signal.SIGKILL


def test_one_that_forks_all_the_time_is_killed_with_all_that_it_starts(groups, pods, pod) -> None:
    ready(groups.start(pod, BREEDING))
    assert eventually(lambda: pods.processes(UID) > 0)
    pods.kill(UID)

    assert eventually(lambda: pods.processes(UID) == 0, 60)
    assert pods.frozen() == frozenset()


def test_a_frozen_pod_stands_still_until_it_is_thawed(groups, pods, pod) -> None:
    process = groups.start(pod)
    assert goes_on(process)

    assert pods.freeze(UID)
    assert stands_still(process)
    assert pods.frozen() == {UID}
    pods.thaw(UID)
    assert pods.frozen() == frozenset()
    assert goes_on(process)


def test_a_frozen_pod_can_be_ended(groups, pods, pod) -> None:
    listening = groups.start(pod)
    pods.freeze(UID)
    pods.terminate(UID)
    assert listening.wait(60) == -signal.SIGTERM

    deaf = ready(groups.start(pod, DEAF))
    pods.freeze(UID)
    pods.kill(UID)
    assert deaf.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("tier", ["burstable", "."], ids=["burstable", "guaranteed"])
def test_nobody_but_best_effort_is_touched(groups, pods, tier) -> None:
    process = groups.start(groups.add_pod(tier, UID))
    for act in (pods.processes, pods.terminate, pods.kill, pods.freeze, pods.thaw):
        with pytest.raises(CgroupError, match="not the cgroup of a best-effort pod: never changed"):
            act(UID)

    assert process.poll() is None
    assert goes_on(process)


@pytest.mark.parametrize("uid", ["../burstable/pod1", "", ".", "1/../../burstable/pod1"])
def test_a_uid_is_never_part_of_a_path(groups, pods, uid) -> None:
    process = groups.start(groups.add_pod("burstable", "1"))
    pods.terminate(uid)
    pods.kill(uid)
    with pytest.raises(CgroupError, match="the pod no longer exists"):
        pods.freeze(uid)

    assert process.poll() is None
    assert goes_on(process)


def test_the_agent_does_not_end_itself(groups, pods, pod) -> None:
    """It may be a best-effort pod like any other."""
    here = groups.cpu / pod / CONTAINER / "cgroup.procs"
    root = groups.roots[0]
    home = root / own_group(root) / "cgroup.procs"
    here.write_text(str(os.getpid()))
    try:
        for act in (pods.terminate, pods.kill, pods.freeze):
            with pytest.raises(CgroupError, match=f"process {os.getpid()}, this agent"):
                act(UID)
    finally:
        home.write_text(str(os.getpid()))


def own_group(root: Path) -> str:
    """The group of this process in a hierarchy."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if root.name in controllers.split(",") or not controllers:
            return group.lstrip("/")
    raise AssertionError(f"this process is in no group of {root}")
