"""Best-effort pods run last: by the weight of their tier, or only when nobody else wants the CPU (``cpu.idle``).

The reference's group identity is a kernel's of Anolis OS (``cpu.bvt_warp_ns``). What every kernel has in its place is
the weight: 2, which the kubelet gives the tier, too. An idle group takes no weight, and a kubelet that restarts over an
idle tier ends: it fails to write the tier's. Our ``podIdle`` therefore makes each best-effort pod idle, and leaves the
tier to the kubelet. Reading: koordinator a7a1b76b, apis/slo/v1alpha1/nodeslo_types.go (CPUQOS);
pkg/koordlet/runtimehooks/hooks/{groupidentity,coresched,cpuidle}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.schemas.knob import BEST_EFFORT_TIER, pod_group
from slacktide.schemas.knob_table import SHARES_MIN
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.qos import effective_priority_class, effective_qos
from slacktide.streams.decisions.spared_pods import is_spared
from slacktide.streams.decisions.wanted_setting import WantedSetting

_LAST = frozenset({"koord-batch", "koord-free"})


def cpu_qos(pods: Sequence[Pod], strategy: ResourceQos) -> Iterator[WantedSetting]:
    """The one knob that the strategy asks for, of the best-effort tier or of each best-effort pod in it."""
    cpu, by = strategy.be.cpu, strategy.policies.cpu
    if not cpu.enable:
        return
    if by == "groupIdentity" and cpu.group_identity < 0:
        yield WantedSetting(
            group=BEST_EFFORT_TIER,
            knob="cpu_shares",
            value=SHARES_MIN,
            rule="CPUQOS (beClass)",
            bound="weight",
            terms={"group_identity": cpu.group_identity, "cpu_shares": SHARES_MIN},
        )
    if by != "groupIdentity" and cpu.sched_idle:
        pods_of_tier = [pod_group(pod.uid) for pod in pods if runs_last(pod) and pod.phase in LIVE_PHASES]
        for group in [BEST_EFFORT_TIER] if by == "coreSched" else pods_of_tier:
            yield WantedSetting(
                group=group,
                knob="cpu_idle",
                value=1,
                rule="CPUQOS idle (beClass)",
                bound="asked",
                terms={"sched_idle": cpu.sched_idle},
            )


def runs_last(pod: Pod) -> bool:
    """Whether a pod may be idle: it is best-effort, and not a mid or critical one that only lies in their tier."""
    best_effort = pod.kube_qos == "BestEffort" and effective_qos(pod.qos_label, pod.kube_qos) == "BE"
    return best_effort and effective_priority_class(pod) in _LAST and not is_spared(pod)
