"""Three short runs on a real kernel check what advice and virtual nodes rest on: use is the lesser of demand and limit.

Each records pods under a limit, foretells their use under another one, and holds that one, too.
"""

import time
from itertools import chain

import pytest

from kernel.groups import LASTS_S, V1, Groups, on
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.deploy.virtual.machine import BEST_EFFORT, Machine
from slacktide.schemas.sample import Limits, PodUse
from slacktide.streams.analysis.replay.model import used_milli

pytestmark = pytest.mark.alone

DUTY = f"""import time
share = {{milli}} / 1000
next_s = time.monotonic()
end_s = next_s + {LASTS_S}
while next_s < end_s:
    begun = time.process_time()
    while time.process_time() - begun < share * 0.05: pass
    next_s = max(next_s + 0.05, time.monotonic())
    time.sleep(next_s - time.monotonic() if next_s > time.monotonic() else 0)
"""
"""Wants so much of one CPU; what it does not get in 50 ms is not made up for."""
POD_LIMIT_MILLI = 1_000
LOOK_S, LOOKS, SETTLE_S = 1.0, 2, 0.3
TOLERANCE = 0.1
"""How far the kernel may be from the lesser of demand and limit: quotas are kept by periods of 100 ms."""


def looks(kernel: CgroupKernel, limit_milli: int) -> list[list[PodUse]]:
    """Hold a limit for a while: what pods used in each second."""
    kernel.hold(Limits(be_cfs_quota_us=limit_milli * 100))
    time.sleep(SETTLE_S)
    kernel.read(time.monotonic_ns())
    found = []
    for _ in range(LOOKS):
        time.sleep(LOOK_S)
        found.append(list(kernel.read(time.monotonic_ns()).pod_use))
    return found


def mean_milli(found: list[list[PodUse]]) -> float:
    return sum(use.cpu_milli or 0 for look in found for use in look) / len(found)


@on(V1)
@pytest.mark.parametrize(
    ("demand_milli", "limits_milli"),
    [
        pytest.param(600, [(300, 150), (300, 450)], id="held back, and then more so or less so"),
        pytest.param(500, [(200, 900), (900, 250)], id="held back, and then free, and then held back"),
        pytest.param(300, [(800, 600)], id="free, and then free"),
    ],
)
def test_use_under_another_limit_is_as_foretold(
    groups: Groups, kernel: CgroupKernel, demand_milli: int, limits_milli: list[tuple[int, int]]
) -> None:
    """The range holds it, and a virtual node's use is as the real one's."""
    groups.start(groups.add_pod("besteffort", "6a0e-11aa"), DUTY.format(milli=demand_milli))
    found = {limit: looks(kernel, limit) for limit in dict.fromkeys(chain(*limits_milli))}

    for recorded_milli, other_milli in limits_milli:
        came = mean_milli(found[other_milli])
        ranges = [
            used_milli([(use, None) for use in look], recorded_milli, other_milli, POD_LIMIT_MILLI)
            for look in found[recorded_milli]
        ]
        low, high = (
            sum(values) / LOOKS for values in zip(*((one.low_milli, one.high_milli) for one in ranges), strict=True)
        )
        assert low * (1 - TOLERANCE) <= came <= high * (1 + TOLERANCE)
        assert came == pytest.approx(virtual_milli(demand_milli, other_milli), rel=TOLERANCE)


def virtual_milli(demand_milli: int, limit_milli: int) -> float:
    """What the same pod uses on a virtual node."""
    machine = Machine(cpus=2, mem_bytes=1 << 30)
    machine.add_pod("be", "BestEffort").demand_milli = demand_milli
    machine.set_quota(BEST_EFFORT, limit_milli * 100)
    machine.step(1_000)
    return machine.root.usage_ns / 1_000_000
