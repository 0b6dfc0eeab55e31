"""Real processes bound to CPUs by real kernels: where they may run is where they run."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.groups import V1, V2_WHOLE, Groups, on
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.sample import Limits
from testbed.one_machine import eventually

ONE_CPU = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is nothing to take")
V1_CPUS = pytest.param(*V1.values, id=V1.id, marks=[*V1.marks, ONE_CPU])
EACH = on(V1_CPUS, V2_WHOLE)
UID = "6a0e-22bb"
POD, CONTAINER = f"besteffort/pod{UID}", f"besteffort/pod{UID}/c1"
LOOKS_S = 1.0


def bound(*cpus: int) -> Limits:
    return Limits(be_cfs_quota_us=None, be_cpuset=list(cpus))


@pytest.fixture
def pod(groups: Groups) -> str:
    groups.add_pod("besteffort", UID)
    groups.bind("besteffort", POD, CONTAINER, "burstable")
    return POD


@pytest.fixture
def busy(groups: Groups, pod: str) -> subprocess.Popen:
    """A process in the container that never sleeps."""
    process = groups.start(pod)
    (groups.cpuset_root / groups.kubepods / CONTAINER / "cgroup.procs").write_text(str(process.pid))
    return process


def allowed(process: subprocess.Popen) -> set[int]:
    return os.sched_getaffinity(process.pid)


def ran_on(process: subprocess.Popen) -> set[int]:
    """CPUs that the process is seen on in a second."""
    seen, end = set(), time.monotonic() + LOOKS_S
    while time.monotonic() < end:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        seen.add(int(fields[36]))
        time.sleep(0.01)
    return seen


@EACH
@pytest.mark.usefixtures("busy")
def test_the_machines_cpus_are_found(kernel: CgroupKernel) -> None:
    assert {one.cpu for one in kernel.processors()} == os.sched_getaffinity(0)
    assert kernel.limits().be_cpuset == sorted(os.sched_getaffinity(0))


@EACH
@pytest.mark.story
def test_a_busy_process_stays_on_the_cpus_it_is_given(kernel: CgroupKernel, busy: subprocess.Popen) -> None:
    whole = kernel.limits()
    for cpu in whole.be_cpuset or ():
        kernel.hold(bound(cpu))

        assert allowed(busy) == {cpu}
        assert eventually(lambda cpu=cpu: ran_on(busy) == {cpu}, 60), "it moves with its next turn"
        assert kernel.limits() == bound(cpu)
    kernel.hold(whole)

    assert allowed(busy) == set(whole.be_cpuset or ())


@on(V1_CPUS)
def test_cpus_go_from_all_groups_below_and_come_back_to_them(groups: Groups, kernel: CgroupKernel, pod: str) -> None:
    whole = kernel.limits()
    text = groups.cpuset("burstable")
    groups.cpuset(CONTAINER, "1")
    kernel.hold(bound(0))
    cut = [groups.cpuset(group) for group in ("besteffort", pod, CONTAINER)]
    kernel.hold(whole)

    assert cut == ["0", "0", "0"]
    assert {groups.cpuset(group) for group in ("besteffort", pod, CONTAINER)} == {text}
    assert groups.cpuset("burstable") == text


@on(V1_CPUS)
@pytest.mark.usefixtures("pod")
def test_a_set_of_its_own_that_comes_to_be_the_best_effort_groups_goes_with_it(
    groups: Groups, kernel: CgroupKernel
) -> None:
    whole = kernel.limits()
    groups.cpuset(CONTAINER, "1")
    kernel.hold(bound(1))
    kernel.hold(whole)

    assert groups.cpuset(CONTAINER) == groups.cpuset("besteffort")


@EACH
@pytest.mark.usefixtures("pod")
def test_cpus_that_the_group_above_lacks_are_refused_with_what_to_do(groups: Groups, kernel: CgroupKernel) -> None:
    before = groups.cpuset("besteffort")
    with pytest.raises(CgroupError, match=r"besteffort/cpuset\.cpus: writing .*: ERANGE .*no such CPU"):
        kernel.hold(bound(*(kernel.limits().be_cpuset or ()), 999))

    assert groups.cpuset("besteffort") == before


@on(V2_WHOLE)
def test_on_v2_a_set_of_its_own_below_yields_and_comes_back_by_itself(
    groups: Groups, kernel: CgroupKernel, busy: subprocess.Popen
) -> None:
    whole = kernel.limits()
    groups.cpuset(CONTAINER, "1")
    own = allowed(busy)
    kernel.hold(bound(0))
    cut = allowed(busy)
    kernel.hold(whole)

    assert (own, cut, allowed(busy)) == ({1}, {0}, {1})
    assert groups.cpuset(CONTAINER) == "1"


@pytest.fixture
def partition(groups: Groups) -> Iterator[Path]:
    """A group of somebody else, beside all that holds pods, that has CPU 1 for itself."""
    group = groups.cpuset_root / f"{groups.kubepods.split('/')[0]}-else"
    group.mkdir()
    (group / "cpuset.cpus").write_text("1")
    (group / "cpuset.cpus.partition").write_text("root")
    assert (group / "cpuset.cpus.partition").read_text() == "root\n"
    yield group
    group.rmdir()


@on(V2_WHOLE)
def test_on_v2_cpus_that_somebody_has_for_itself_are_not_said_to_be_held(
    kernel: CgroupKernel, busy: subprocess.Popen, partition: Path
) -> None:
    """The kernel takes the text, and lets the processes run elsewhere."""
    others = [cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu != 1]
    assert [one.cpu for one in kernel.processors()] == others
    with pytest.raises(CgroupError, match=r"has CPUs 0\S* after 1 was written; .*cpuset\.cpus\.partition"):
        kernel.hold(bound(1))

    assert allowed(busy) == set(others)
    assert kernel.limits() == bound(*others)


@on(V2_WHOLE)
def test_on_v2_cpus_taken_while_they_are_held_are_no_longer_said_to_be(
    kernel: CgroupKernel, busy: subprocess.Popen, request: pytest.FixtureRequest
) -> None:
    kernel.hold(bound(1))
    partition = request.getfixturevalue("partition")
    others = [cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu != 1]
    taken = kernel.limits(), allowed(busy)
    (partition / "cpuset.cpus.partition").write_text("member")

    assert taken == (bound(*others), set(others))
    assert kernel.limits() == bound(1)
    assert eventually(lambda: allowed(busy) == {1}, 60)
