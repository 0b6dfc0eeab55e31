"""What a service ran and waited, by the counters of a real kernel."""

import os
import time
from collections.abc import Callable

import pytest

from kernel.groups import MOUNT, V1, V2_WHOLE, Groups, on, unified_of
from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.agents.node.service_times import NodeTimes, ServiceTimesReader, service_minutes
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.service import ServiceMinute
from testbed.waiting import soon

CPUS = os.cpu_count() or 1
FACTS = NodeFacts(name="node-1", capacity=Resources(cpu_milli=1_000 * CPUS), allocatable=Resources())
PODS = [Pod(uid=uid, namespace="shop", name=uid, owner=uid) for uid in ("web", "limited")]
SLACK_US = 100_000
"""Files are read one after the other, and on v1 each CPU's time is added up late."""


class Metered:
    """The services of a node since the first read."""

    def __init__(self, groups: Groups) -> None:
        self._reader = ServiceTimesReader(find(MOUNT, groups.kubepods))
        self._first = self._read()

    def _read(self) -> NodeTimes:
        found = self._reader.read({pod.uid for pod in PODS} | {"batch"}, time.monotonic_ns())
        assert found is not None
        return found

    async def until(self, true: Callable[[ServiceMinute], bool]) -> ServiceMinute:
        """Its minutes as if it ended now, until it is true of one."""

        async def now() -> ServiceMinute | None:
            minutes = service_minutes(self._first, self._read(), FACTS, PODS, 0)
            return minutes[0] if minutes else None

        found = await soon(now, "such a minute", enough=lambda one: one is not None and true(one))
        assert found is not None
        self._reader.close()
        return found


@on(V1, V2_WHOLE)
@pytest.mark.story
async def test_a_service_that_shares_its_cpu_with_best_effort_work_waits(groups: Groups) -> None:
    unified_of(groups)
    cpu = min(os.sched_getaffinity(0))
    for pod in (groups.add_pod("burstable", "web"), groups.add_pod("besteffort", "batch")):
        os.sched_setaffinity(groups.start(pod).pid, {cpu})
    minute = await Metered(groups).until(lambda one: min(one.wait_us, one.run_us, one.be_cpu_us) > 300_000)
    span_us = 1_000 * (minute.span_ms + 1)
    assert (minute.service, minute.pods, minute.cpus) == ("shop/web", 1, CPUS)
    # Its one process ran or waited, all the time.
    assert minute.run_us + minute.wait_us <= span_us + SLACK_US
    assert minute.run_us + minute.wait_us >= span_us // 2
    assert abs(minute.ls_cpu_us - minute.run_us) <= SLACK_US, "there is no other pod"
    assert minute.run_us + minute.be_cpu_us <= span_us + SLACK_US, "of one CPU"


@on(V1, V2_WHOLE)
async def test_a_service_that_its_own_quota_throttles_does_not_wait(groups: Groups) -> None:
    unified_of(groups)
    pod = groups.add_pod("burstable", "limited")
    groups.quota(f"{pod}/c1", "20000" if groups.version == 1 else "20000 100000")
    metered = Metered(groups)
    groups.start(pod)
    throttled = groups.throttling(f"{pod}/c1").throttled
    minute = await metered.until(lambda _: groups.throttling(f"{pod}/c1").throttled > throttled + 20)
    assert minute.service == "shop/limited"
    assert minute.wait_us < 1_000 * minute.span_ms // 2, "it was stopped for some 4 fifths of the time"
