"""PSI triggers of a real kernel: they fire where processes stall, follow groups, and say why where they cannot be."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernel.groups import BUSY, MOUNT, V1, V2_WHOLE, Groups, on, unified_of
from slacktide.agents.node.ahead import LookedGate
from slacktide.agents.node.cgroup.hierarchy import Hierarchy, find
from slacktide.agents.node.cgroup.kernel import CgroupKernel
from slacktide.agents.node.pressure import (
    NO_GROUPS,
    UNPRIVILEGED,
    LatencySensitiveUse,
    PressureFile,
    PressureWatch,
    Stall,
    StallReader,
    Trigger,
    Waited,
    pressure_files,
)
from slacktide.agents.node.run_delay import RunDelayReader, throttled_us
from slacktide.schemas.sample import Limits, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import fold
from slacktide.streams.decisions.suppress.cpu_suppress import UNLIMITED

PROC = Path("/proc")
CAP_SYS_RESOURCE = 24
ANYBODYS = Stall(stall_ms=50, window_ms=2_000)
"""A window that the kernel gives to everybody."""
FIRES_S = 60.0


def may_have_short_windows() -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return bool(int(found[1], 16) >> CAP_SYS_RESOURCE & 1)


async def until(true: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + FIRES_S
    while not true() and time.monotonic() < until_s:  # noqa: ASYNC110 - what is asked is the kernel
        await asyncio.sleep(0.02)
    return true()


@pytest.fixture
def rivals() -> Iterator[None]:
    """Two processes that want the same CPU."""
    cpu = min(os.sched_getaffinity(0))
    running = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(2)]
    for process in running:
        os.sched_setaffinity(process.pid, {cpu})
    yield
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.kernel
@pytest.mark.parametrize("loop_of", ["asyncio", "uvloop"])
def test_a_trigger_fires_on_either_loop_where_two_want_one_cpu(loop_of: str, rivals: None) -> None:
    async def fired() -> bool:
        times: list[float] = []
        trigger = Trigger("/proc/pressure/cpu", ANYBODYS, lambda: times.append(time.monotonic()), pytest.fail)
        seen = await until(lambda: bool(times))
        trigger.close()
        return seen

    factory = __import__(loop_of).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(fired())


@pytest.mark.kernel
async def test_a_short_window_is_for_the_privileged_and_the_others_are_told_what_they_lack() -> None:
    if may_have_short_windows():
        Trigger("/proc/pressure/cpu", Stall(), pytest.fail, pytest.fail).close()
    else:
        with pytest.raises(PermissionError, match=UNPRIVILEGED):
            Trigger("/proc/pressure/cpu", Stall(), pytest.fail, pytest.fail)


@pytest.mark.kernel
async def test_a_plain_file_is_not_written(tmp_path: Path) -> None:
    """A virtual node's file looks like the kernel's; a trigger's text in it would be read as pressure."""
    file = tmp_path / "cpu"
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")

    with pytest.raises(OSError, match="not a file of a kernel"):
        Trigger(str(file), ANYBODYS, pytest.fail, pytest.fail)
    assert file.read_text().startswith("some avg10")


@on(V1, V2_WHOLE)
@pytest.mark.story
async def test_the_groups_of_latency_sensitive_pods_are_waited_on_and_no_other(groups: Groups) -> None:
    root = unified_of(groups)
    groups.add_pod("besteffort", "be")
    groups.make("podguaranteed/c1")
    found = pressure_files(find(MOUNT, groups.kubepods), PROC)

    above = root / groups.kubepods
    wanted = [above / "burstable", above / "podguaranteed"]
    assert [file.path for file in found] == [
        f"{group}/{kind}.pressure" for group in wanted for kind in ("cpu", "memory")
    ]


@on(V1, V2_WHOLE)
async def test_a_tiers_trigger_fires_by_its_own_pods_and_is_set_anew_where_the_tier_is_made_anew(
    groups: Groups,
) -> None:
    root = unified_of(groups)
    hierarchy = find(MOUNT, groups.kubepods)
    stall = Stall() if may_have_short_windows() else ANYBODYS
    pressed: list[str] = []
    watch = PressureWatch(Waited(stall=stall, files=lambda: pressure_files(hierarchy, PROC)), pressed.append)
    watch.look()
    assert watch.counts() == {("cpu", "set"): 1, ("memory", "set"): 1}

    groups.remove("burstable")
    assert await until(lambda: not watch.counts()), "a trigger whose group is gone is let go"
    assert not pressed, "and that is no pressure"
    pod = groups.add_pod("burstable", "ls")
    watch.look()
    assert watch.counts() == {("cpu", "set"): 1, ("memory", "set"): 1}
    for _ in range(1 + len(os.sched_getaffinity(0))):
        groups.start(pod)
    assert (root / groups.kubepods / pod).is_dir()

    assert await until(lambda: "cpu" in pressed)
    watch.close()


@pytest.mark.kernel
async def test_what_is_refused_is_said_once_and_the_rest_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = [
        PressureFile(kind="cpu", path=str(tmp_path / "cpu.pressure")),
        PressureFile(kind="memory", path="/proc/pressure/memory"),
    ]
    watch = PressureWatch(Waited(stall=ANYBODYS, files=lambda: there), pytest.fail)
    for _ in range(3):
        watch.look()

    assert watch.counts() == {("cpu", "refused"): 1, ("memory", "set"): 1}
    assert [(one.getMessage(), one.why) for one in caplog.records] == [
        ("cannot set a trigger for cpu pressure", "No such file or directory")
    ]
    watch.close()
    assert not {("cpu", "set"), ("memory", "set")} & watch.counts().keys()


@on(V1)
async def test_without_groups_that_tell_of_it_cpu_is_not_waited_on(
    groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    """The node's own pressure would be that of best-effort pods that are held back."""
    hierarchy = find(MOUNT, groups.kubepods)
    found = pressure_files(hierarchy, PROC)
    assert found == [PressureFile(kind="memory", path="/proc/pressure/memory")]

    watch = PressureWatch(Waited(stall=ANYBODYS, files=lambda: found), pytest.fail)
    watch.look()
    assert [one.why for one in caplog.records] == [NO_GROUPS]
    watch.close()


async def test_latency_sensitive_use_is_all_but_best_effort(groups: Groups) -> None:
    use = LatencySensitiveUse(find(MOUNT, groups.kubepods))
    before_ns = use.cpu_ns()
    assert before_ns is not None
    groups.start(groups.add_pod("besteffort", "be"))
    await asyncio.sleep(0.5)
    between_ns = use.cpu_ns()
    assert between_ns is not None
    groups.start(groups.add_pod("burstable", "ls"))

    assert between_ns - before_ns < 20_000_000
    assert await until(lambda: (use.cpu_ns() or 0) - between_ns > 50_000_000)
    use.close()


@on(V1)
@pytest.mark.alone
async def test_stall_beside_a_best_effort_pod_stops_it_and_the_proof_gives_it_back(
    groups: Groups, tmp_path: Path
) -> None:
    """A service and two best-effort processes want one CPU: the service waits because of them."""
    unified_of(groups)
    cpu = min(os.sched_getaffinity(0))
    for pod in (groups.add_pod("burstable", "ls"), groups.add_pod("besteffort", "be")):
        for _ in range(2 if "besteffort" in pod else 1):
            os.sched_setaffinity(groups.start(pod).pid, {cpu})
    kernel = CgroupKernel(MOUNT, PROC, groups.kubepods, tmp_path)
    reader, gate = StallReader(kernel.hierarchy, PROC), LookedGate()

    async def turned() -> str:
        for _ in range(round(FIRES_S / 0.1)):
            await asyncio.sleep(0.1)
            look = reader.look(time.monotonic_ns())
            if look is not None and gate.looked(look):
                return fold(gate.sampled()).bound
        return f"no turn: {gate.gate}"

    assert await turned() == "cut"
    kernel.hold(Limits(be_cfs_quota_us=2_000))
    assert groups.quota("besteffort") == "2000"
    assert await turned() == "helped", gate.gate
    kernel.hold(UNLIMITED)
    assert groups.quota("besteffort") == "-1"
    assert await turned() == "cut", "and what comes back is a cause again"
    reader.close()


def without_psi(groups: Groups) -> Hierarchy:
    """The groups as a kernel without PSI of cgroups has them."""
    found = find(MOUNT, groups.kubepods)
    return replace(found, mount=found.mount / "none")


@on(V1, V2_WHOLE)
@pytest.mark.story
async def test_without_psi_the_threads_of_pods_tell_how_long_they_waited(groups: Groups) -> None:
    cpu = min(os.sched_getaffinity(0))
    for tier in ("burstable", "besteffort"):
        os.sched_setaffinity(groups.start(groups.add_pod(tier, tier)).pid, {cpu})
    reader, looks = StallReader(without_psi(groups), PROC), list[PressureLook]()

    def waited() -> bool:
        look = reader.look(time.monotonic_ns())
        looks.extend([] if look is None else [look])
        return sum(one.cpu_stall_us for one in looks) > 300_000

    assert await until(waited), looks
    assert sum(one.ls_cpu_us for one in looks) <= sum(one.span_us for one in looks)
    reader.close()


@on(V1, V2_WHOLE)
async def test_a_pod_that_its_own_quota_throttles_does_not_wait_for_others(groups: Groups) -> None:
    pod = groups.add_pod("burstable", "limited")
    groups.quota(pod, "5000" if groups.version == 1 else "5000 100000")
    groups.start(pod)
    reader, stat = RunDelayReader(find(MOUNT, groups.kubepods), PROC), groups.cpu / pod / "cpu.stat"
    waited_us, begin_s = list[int](), time.monotonic()

    def throttled() -> bool:
        delay = reader.look(time.monotonic_ns())
        waited_us.extend([] if delay is None else [delay.waited_us])
        return throttled_us(stat.read_bytes()) > 2_000_000

    assert await until(throttled)
    whole_us = (time.monotonic() - begin_s) * 1e6
    groups.quota(pod, "-1" if groups.version == 1 else "max 100000")
    # On a busy machine it waits for others, too, but not while it is throttled.
    assert sum(waited_us) + throttled_us(stat.read_bytes()) < whole_us + 1_000_000
    reader.close()
