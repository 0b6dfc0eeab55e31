"""What of cgroup v2 only a whole kernel has, set as an agent sets it: real processes feel what it promises."""

import math
import os
import time
from pathlib import Path

import pytest

from kernel.groups import V2_WHOLE, Groups, on
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.knob import BEST_EFFORT_TIER, KnobKey, pod_group
from testbed.one_machine import eventually

pytestmark = on(V2_WHOLE)
MIB = 1 << 20
BATCH = Pod(uid="6a0e-11bb", namespace="default", name="batch", kube_qos="BestEffort")
SERVICE = Pod(uid="6a0e-11aa", namespace="default", name="web", kube_qos="Burstable", limits=Resources(cpu_milli=500))
PERIOD_US, QUOTA_US, BURST_US = 400_000, 200_000, 200_000
USES_320_MS_WHEN_ASKED = """import sys, time
for _ in sys.stdin:
    end = time.process_time() + 0.32
    while time.process_time() < end: pass
    print(flush=True)
"""
TAKES_48_MIB = "held = [bytearray(b'x' * (1 << 20)) for _ in range(48)]\nprint(len(held), flush=True)"


@pytest.fixture
def pods(groups: Groups, kernel: CgroupKernel) -> tuple[str, str]:
    """The groups of a service and of a batch pod that the agent knows."""
    made = groups.add_pod("burstable", SERVICE.uid), groups.add_pod("besteffort", BATCH.uid)
    kernel.read(time.monotonic_ns())
    kernel.know([SERVICE, BATCH])
    return made


def figures(file: Path) -> dict[str, int]:
    """A file with a name and a number on each line."""
    return {name: int(number) for name, number in (line.split() for line in file.read_text().splitlines())}


def test_a_pod_with_a_burst_saves_up_what_it_does_not_use(
    groups: Groups, kernel: CgroupKernel, pods: tuple[str, str]
) -> None:
    service, _ = pods
    groups.quota(service, f"{QUOTA_US} {PERIOD_US}")
    process = groups.start(service, USES_320_MS_WHEN_ASKED)

    def ask(times: int) -> tuple[int, int]:
        """How often it was throttled, and how often it spent what it had saved up."""
        time.sleep(2 * PERIOD_US / 1e6)  # in which it saves up
        before = figures(groups.cpu / service / "cpu.stat")
        for _ in range(times):
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
        time.sleep(PERIOD_US / 1e6)  # until it is counted
        after = figures(groups.cpu / service / "cpu.stat")
        return after["nr_throttled"] - before["nr_throttled"], after["nr_bursts"] - before["nr_bursts"]

    throttled, bursts = ask(2)
    assert throttled >= 1
    assert bursts == 0
    kernel.put(KnobKey(pod_group(SERVICE.uid), "cfs_burst_us"), BURST_US)
    assert eventually(lambda: ask(1) == (0, 1), 60), "a guest whose host is busy counts what it waited for, too"
    assert (groups.cpu / service / "cpu.max.burst").read_text() == f"{BURST_US}\n"


def test_memory_high_slows_a_pod_that_takes_more_and_does_not_end_it(
    groups: Groups, kernel: CgroupKernel, pods: tuple[str, str]
) -> None:
    key = KnobKey(pod_group(BATCH.uid), "mem_high_bytes")
    group = groups.cpu / pods[1]
    kernel.put(key, 16 * MIB)
    process = groups.start(pods[1], TAKES_48_MIB)
    assert eventually(lambda: figures(group / "memory.events")["high"], 60)
    time.sleep(1)
    held_bytes = int((group / "memory.current").read_text())
    waited_us = int((group / "memory.pressure").read_text().split()[-1].removeprefix("total="))
    kernel.put(key, None)

    assert process.stdout.readline() == "48\n"
    assert held_bytes < 24 * MIB
    assert waited_us > 0
    assert figures(group / "memory.events")["oom_kill"] == 0


@pytest.mark.story
def test_idle_best_effort_pods_run_only_where_nobody_else_wants_to(
    groups: Groups, kernel: CgroupKernel, pods: tuple[str, str]
) -> None:
    for pod in pods:
        os.sched_setaffinity(groups.start(pod).pid, {0})

    def share_of_best_effort() -> float:
        files = [groups.cpu / tier / "cpu.stat" for tier in ("burstable", "besteffort")]
        before = [figures(file)["usage_usec"] for file in files]
        time.sleep(1)
        others, own = (figures(file)["usage_usec"] - was for file, was in zip(files, before, strict=True))
        return own / ((own + others) or math.nan)  # a guest may have stood still

    key = KnobKey(BEST_EFFORT_TIER, "cpu_idle")
    assert eventually(lambda: share_of_best_effort() > 0.3, 60), "both run"
    kernel.put(key, 1)
    assert eventually(lambda: share_of_best_effort() < 0.1, 60), "it runs in what is left"
    kernel.put(key, 0)

    assert (groups.cpu / "besteffort/cpu.weight").read_text() == "1\n"


def test_nothing_is_missing_in_a_reading_and_it_tells_of_pressure(
    groups: Groups, kernel: CgroupKernel, pods: tuple[str, str]
) -> None:
    for pod in pods:
        os.sched_setaffinity(groups.start(pod).pid, {0})

    def pressed_pct() -> float:
        reading = kernel.read(time.monotonic_ns())
        assert reading.missing == []
        return reading.use.pressure.cpu_some_pct

    assert eventually(pressed_pct, 60, every_s=0.5) > 0
