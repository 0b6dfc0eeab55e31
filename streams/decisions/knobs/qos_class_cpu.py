"""Runs best-effort pods last: by the weight of their tier or by ``cpu.idle``.

The reference's group identity needs the kernel of Anolis OS (``cpu.bvt_warp_ns``). Other kernels have the weight
instead: 2, which the kubelet also gives the tier. An idle group accepts no weight. A kubelet that restarts over an idle
tier exits, because it fails to write the tier's weight. ``podIdle`` therefore makes each best-effort pod idle, not the
tier. Reading: koordinator a7a1b76b, apis/slo/v1alpha1/nodeslo_types.go (CPUQOS);
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
    """Yield the knob that the strategy selects, for the best-effort tier or for each best-effort pod in it."""
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
    """Return whether a pod may be idle: it is best-effort, and neither mid nor critical."""
    best_effort = pod.kube_qos == "BestEffort" and effective_qos(pod.qos_label, pod.kube_qos) == "BE"
    return best_effort and effective_priority_class(pod) in _LAST and not is_spared(pod)
