"""Models of what pods use, as an agent trains them."""

from typing import Any

from slacktide.agents.node.forecast import Trainer
from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import NodeSample, NodeUse, PodUse
from testbed.samples import BOOT, GIB, PODS, START_MS, sample

MINUTE_MS = 60_000


def seen(minute: int, cpu_milli: int | None = 1_000, **changes: Any) -> NodeSample:
    """The first sample of a minute: the service uses this, the batch pod half a CPU, and the system a tenth."""
    uses = [PodUse(uid="ls", cpu_milli=cpu_milli, mem_bytes=GIB), PodUse(uid="be", cpu_milli=500, mem_bytes=2 * GIB)]
    whole = NodeUse(cpu_milli=None if cpu_milli is None else cpu_milli + 600, mem_bytes=4 * GIB)
    return sample(1, **{"observed_ms": START_MS + minute * MINUTE_MS, "use": whole, "pod_use": uses} | changes)


def trained(minutes: int, pods: list[Pod] | None = None, boot_id: str = BOOT) -> Trainer:
    """One that has been taught so many minutes."""
    trainer = Trainer("node-1", boot_id)
    for minute in range(minutes + 1):
        trainer.saw(seen(minute), PODS if pods is None else pods)
    return trainer
