"""Real processes under real kernels: what the agent reads of them is so, and what it holds them to holds."""

import os
import re
import time
from pathlib import Path

import pytest

from kernel.groups import V1, V2, V2_WHOLE, on, used_ticks
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.sample import Limits
from testbed.one_machine import eventually

MIB, SECOND_NS = 1 << 20, 1_000_000_000
UID = "6a0e-11aa"
UNLIMITED = Limits(be_cfs_quota_us=None)


def limit(quota_us):
    return Limits(be_cfs_quota_us=quota_us)


def reading_over(kernel, seconds):
    """What happened in the next seconds."""
    kernel.read(time.monotonic_ns())
    time.sleep(seconds)
    return kernel.read(time.monotonic_ns())


def use_of(reading, uid=UID):
    return next(use for use in reading.pod_use if use.uid == uid)


def said(reading):
    """What is missing, but for PSI, which not every kernel has."""
    return {missing.what: missing.why for missing in reading.missing if not missing.what.startswith("/proc/pressure/")}


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@on(V1, V2, V2_WHOLE)
@pytest.mark.story
@pytest.mark.alone
def test_a_busy_process_is_cut_and_released(groups, kernel) -> None:
    pod = groups.add_pod("besteffort", UID)
    groups.start(pod)

    def is_free():
        return use_of(reading_over(kernel, 1)).cpu_milli > 200

    assert eventually(is_free, 60)
    kernel.hold(limit(10_000))

    def is_cut():
        """Not while what was handed out before is used up, or what it overran by is paid back."""
        return use_of(reading_over(kernel, 1)).cpu_milli == pytest.approx(100, abs=60)

    assert eventually(is_cut, 60)
    assert groups.throttling("besteffort").throttled
    kernel.hold(UNLIMITED)
    assert eventually(is_free, 60)


def test_throttled_periods_of_a_pod_are_counted(groups, kernel) -> None:
    pod = groups.add_pod("burstable", UID)
    groups.quota(pod, "10000" if groups.version == 1 else "10000 100000")
    groups.start(pod)
    first = groups.throttling(pod)
    kernel.read(time.monotonic_ns())
    begin = groups.throttling(pod)
    assert eventually(lambda: groups.throttling(pod).throttled >= begin.throttled + 3, 60)
    end = groups.throttling(pod)
    use = use_of(kernel.read(time.monotonic_ns()))
    last = groups.throttling(pod)

    assert end.periods - begin.periods <= use.periods <= last.periods - first.periods
    assert end.throttled - begin.throttled <= use.throttled_periods <= last.throttled - first.throttled
    assert not use.best_effort_group


def test_cpu_read_is_what_the_process_used(groups, kernel) -> None:
    process = groups.start(groups.add_pod("besteffort", UID))
    tick_ms = 1_000 // os.sysconf("SC_CLK_TCK")
    first = used_ticks(process)
    kernel.read(time.monotonic_ns())
    begin = used_ticks(process)
    assert eventually(lambda: used_ticks(process) - begin > 500 // tick_ms, 60)
    end = used_ticks(process)
    reading = kernel.read(time.monotonic_ns())
    last = used_ticks(process)
    used_ms = use_of(reading).cpu_milli * reading.interval_ms / 1_000
    used_milli = use_of(reading).cpu_milli

    slack_ms = 60  # in whole ticks the kernel counts elsewhere than in groups
    assert (end - begin) * tick_ms - slack_ms <= used_ms <= (last - first) * tick_ms + slack_ms
    assert reading.use.cpu_milli > used_milli / 2  # a machine that itself is a guest is not told all of it
    assert said(reading) == {}


@on(V1, V2, V2_WHOLE)
def test_droppable_page_cache_is_not_working_set(groups, kernel, tmp_path) -> None:
    (tmp_path / "big").write_bytes(b"\0" * 48 * MIB)
    os.sync()
    with (tmp_path / "big").open("rb") as big:
        os.posix_fadvise(big.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    process = groups.start(
        groups.add_pod("besteffort", UID),
        f"held = bytearray(b'x' * {32 * MIB}); open({str(tmp_path / 'big')!r}, 'rb').read()\n"
        "print(flush=True); sys.stdin.readline()",
    )
    process.stdout.readline()

    def told():
        return 32 * MIB <= use_of(kernel.read(time.monotonic_ns())).mem_bytes < 48 * MIB

    assert eventually(told, 60)  # the kernel may take 2 s until memory.stat tells of what was just read


def test_a_pod_made_anew_under_the_same_name_is_read_anew(groups, kernel) -> None:
    groups.add_pod("besteffort", UID)
    kernel.read(time.monotonic_ns())
    groups.remove(f"besteffort/pod{UID}")
    groups.start(groups.add_pod("besteffort", UID))
    assert eventually(lambda: use_of(kernel.read(time.monotonic_ns())).cpu_milli, 60, every_s=0.3)
    assert said(kernel.read(time.monotonic_ns())) == {}


def test_a_still_pod_made_anew_under_the_same_name_is_read_anew(groups, kernel) -> None:
    """Of a still pod only its CPU time is read: one that came back is told by it, or by its old file's being gone."""
    groups.add_pod("besteffort", UID)
    for second in range(1, 7):
        kernel.read(second * SECOND_NS)
    groups.remove(f"besteffort/pod{UID}")
    process = groups.start(groups.add_pod("besteffort", UID))
    assert eventually(lambda: used_ticks(process) > 5)
    reading = kernel.read(7 * SECOND_NS)

    assert use_of(reading).cpu_milli > 0
    assert use_of(reading).mem_bytes > 0
    assert said(reading) == {}


def test_descriptors_are_kept_for_pods_that_are_there_and_for_no_others(groups, kernel) -> None:
    kernel.read(time.monotonic_ns())
    before = descriptors()
    for number in range(5):
        groups.add_pod("besteffort", f"{number}")
    kernel.read(time.monotonic_ns())
    kept = descriptors()
    for number in range(5):
        groups.remove(f"besteffort/pod{number}")
    kernel.read(time.monotonic_ns())

    assert kept == before + 5 * (4 if groups.version == 1 else 3)
    assert descriptors() == before


def test_without_room_for_descriptors_all_is_read_all_the_same(groups, kernel) -> None:
    groups.start(groups.add_pod("besteffort", UID))
    kernel._pods._room.left = 0
    before = descriptors()

    assert eventually(lambda: use_of(reading_over(kernel, 0.3)).cpu_milli, 60)
    assert descriptors() == before


def test_only_the_best_effort_group_holds_the_limit(groups, kernel) -> None:
    for tier in ("besteffort", "burstable"):
        groups.add_pod(tier, "1")
    others = ["", "burstable", "burstable/pod1", "besteffort/pod1", "besteffort/pod1/c1"]
    before = [groups.quota(group) for group in others]
    kernel.hold(limit(30_000))

    assert groups.quota("besteffort") == ("30000" if groups.version == 1 else "30000 100000")
    assert [groups.quota(group) for group in others] == before


@on(V1)
def test_on_v1_quotas_below_are_cut_to_fit_and_given_back_over_a_restart(groups, kernel, tmp_path) -> None:
    pod = groups.add_pod("besteffort", UID)
    groups.quota(pod, "80000")
    groups.quota(f"{pod}/c1", "60000")
    kernel.hold(limit(30_000))
    cut = groups.quota(pod), groups.quota(f"{pod}/c1")
    kernel = CgroupKernel(Path("/sys/fs/cgroup"), Path("/proc"), groups.kubepods, tmp_path)
    kernel.hold(limit(70_000))
    raised = groups.quota(pod), groups.quota(f"{pod}/c1")
    kernel.hold(UNLIMITED)

    assert cut == ("30000", "30000")
    assert raised == ("70000", "60000")
    assert (groups.quota(pod), groups.quota(f"{pod}/c1")) == ("80000", "60000")


@on(V1)
def test_on_v1_a_quota_that_somebody_else_wrote_meanwhile_stands(groups, kernel) -> None:
    pod = groups.add_pod("besteffort", UID)
    groups.quota(pod, "80000")
    kernel.hold(limit(30_000))
    groups.quota(pod, "20000")
    kernel.hold(UNLIMITED)

    assert groups.quota(pod) == "20000"


@on(V1)
def test_on_v1_somebody_elses_tighter_pod_does_not_stop_a_raise(groups, kernel) -> None:
    """Its container was cut by us, and cannot get back more than the pod now holds."""
    pod = groups.add_pod("besteffort", UID)
    groups.quota(f"{pod}/c1", "60000")
    kernel.hold(limit(30_000))
    groups.quota(pod, "30000")
    kernel.hold(UNLIMITED)

    assert (groups.quota(pod), groups.quota(f"{pod}/c1")) == ("30000", "30000")
    groups.quota(pod, "-1")
    kernel.hold(limit(90_000))
    assert groups.quota(f"{pod}/c1") == "60000"


@on(V1)
def test_on_v1_a_limit_above_that_of_the_group_above_is_refused_with_the_reason(groups, kernel) -> None:
    groups.quota("", "50000")

    with pytest.raises(
        CgroupError, match=r"besteffort/cpu.cfs_quota_us: writing '60000': EINVAL .*limited parent cgroup"
    ):
        kernel.hold(limit(60_000))
    assert kernel.limits() == UNLIMITED


@on(V2)
def test_on_v2_quotas_below_are_left_alone(groups, kernel) -> None:
    pod = groups.add_pod("besteffort", UID)
    groups.quota(pod, "60000 100000")
    kernel.hold(limit(20_000))

    assert kernel.limits() == limit(20_000)
    assert groups.quota(pod) == "60000 100000"


@on(V2)
def test_on_v2_without_the_cpu_controller_the_error_says_what_to_do_and_it_helps(groups, kernel) -> None:
    controls = [groups.cpu / "cgroup.subtree_control", groups.cpu.parent / "cgroup.subtree_control"]
    for file in controls:
        file.write_text("-cpu")
    reading = kernel.read(time.monotonic_ns())
    with pytest.raises(CgroupError, match=r"cpu controller is not enabled .*: write \+cpu to ") as refused:
        kernel.hold(limit(20_000))
    named = re.findall(r"\S+subtree_control", str(refused.value))

    assert named == [str(file) for file in reversed(controls)]
    assert reading.limits is None
    assert any(what.endswith("besteffort/cpu.max") for what in said(reading))
    for file in named:
        Path(file).write_text("+cpu")
    kernel.hold(limit(20_000))
    assert kernel.limits() == limit(20_000)
