"""Finds and reads knobs of a virtual machine's cgroups, with permission checks. Pure."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.group_knobs import FILES, Place, refusal, shares_of
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, BURSTABLE, GUARANTEED
from slacktide.deploy.virtual.machine import PARENT_OF_QOS, Machine
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import TIERS, KnobKey, container_of, uid_of
from slacktide.schemas.knob_table import Knob
from testbed.virtual.containers import only_container

_TIER_OF = {"Guaranteed": GUARANTEED, "Burstable": BURSTABLE, "BestEffort": BEST_EFFORT}
_QOS_OF = {name: kube_qos for kube_qos, name in TIERS.items()}


def place(machine: Machine, known: Mapping[str, Pod], group: str) -> Place | None:
    if group in _QOS_OF:
        base, pod = PurePosixPath(PARENT_OF_QOS[_QOS_OF[group]]), None
        return Place(tier=_TIER_OF[_QOS_OF[group]], base=base, inside=PurePosixPath())
    pod, there = known.get(uid_of(group)), machine.pods.get(uid_of(group))
    if pod is None or there is None:
        return None
    name, container = container_of(group), only_container(pod)
    if name and (container is None or container.name != name):
        return None
    base = PurePosixPath(there.path)
    kube_qos = next(qos for qos, above in PARENT_OF_QOS.items() if above == str(base.parent))
    return Place(
        tier=_TIER_OF[kube_qos], base=base, inside=PurePosixPath(), pod=pod, container=container if name else None
    )


def checked(machine: Machine, known: Mapping[str, Pod], key: KnobKey, value: int | None) -> Place:
    """Return the location of a knob that may be set to this value."""
    found = place(machine, known, key.group)
    if found is None:
        raise CgroupError(key.group, "no such group here")
    why = refusal(found, key.knob, value)
    if why or lacks(machine, key.knob):
        raise CgroupError(f"{key.group} {key.knob}", f"never written: {why}" if why else "this version has none")
    return found


def lacks(machine: Machine, knob: Knob) -> bool:
    """Return whether the kernel lacks the knob."""
    return knob != "cfs_quota_us" and knob not in FILES[machine.version]


def read(machine: Machine, path: str, knob: Knob) -> int | None:
    group = machine.groups[path]
    if knob == "cpu_shares":
        return group.weight if machine.version == 1 else shares_of(group.weight)
    return group.burst_us if knob == "cfs_burst_us" else group.knobs[knob]
