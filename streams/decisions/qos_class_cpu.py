"""Best-effort pods run last: by the weight of their tier, or only when nobody else wants the CPU (``cpu.idle``).

The reference's group identity is a kernel's of Anolis OS (``cpu.bvt_warp_ns``). What every kernel has in its place is
the weight: 2, which the kubelet gives the tier, too. Reading: koordinator a7a1b76b, apis/slo/v1alpha1/nodeslo_types.go
(CPUQOS); pkg/koordlet/runtimehooks/hooks/{groupidentity,coresched,cpuidle}.
"""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.schemas.knob import BEST_EFFORT_TIER
from slacktide.schemas.knob_table import SHARES_MIN
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.streams.decisions.wanted_setting import WantedSetting


def cpu_qos(strategy: ResourceQos) -> Iterator[WantedSetting]:
    """The one knob of the best-effort tier that the strategy asks for, if it asks for one."""
    cpu = strategy.be.cpu
    if not cpu.enable:
        return
    if strategy.policies.cpu == "groupIdentity" and cpu.group_identity < 0:
        yield WantedSetting(
            group=BEST_EFFORT_TIER,
            knob="cpu_shares",
            value=SHARES_MIN,
            rule="CPUQOS (beClass)",
            bound="weight",
            terms={"group_identity": cpu.group_identity, "cpu_shares": SHARES_MIN},
        )
    if strategy.policies.cpu == "coreSched" and cpu.sched_idle:
        yield WantedSetting(
            group=BEST_EFFORT_TIER,
            knob="cpu_idle",
            value=1,
            rule="CPUQOS idle (beClass)",
            bound="asked",
            terms={"sched_idle": cpu.sched_idle},
        )
