"""Names of knobs and cgroups in drift, settings and the kernel interface."""

from typing import NamedTuple

from slacktide.schemas.knob_table import Knob

TIERS = {"Guaranteed": "tier/guaranteed", "Burstable": "tier/burstable", "BestEffort": "tier/besteffort"}
"""Tier by Kubernetes QoS. That of Guaranteed pods is the parent of all pods and tiers."""
BEST_EFFORT_TIER = TIERS["BestEffort"]


class KnobKey(NamedTuple):
    """One knob of one cgroup."""

    group: str
    """``tier/besteffort`` and the like, ``pod/<uid>`` or ``pod/<uid>/<container name>``."""
    knob: Knob

    @property
    def target(self) -> str:
        """The target of an act on it."""
        return f"{self.group}#{self.knob}"


def pod_group(uid: str) -> str:
    """Name of a pod's cgroup."""
    return f"pod/{uid}"


def container_group(uid: str, name: str) -> str:
    """Name of a container's cgroup."""
    return f"pod/{uid}/{name}"


def uid_of(group: str) -> str:
    """Uid of the pod; "": a tier."""
    kind, _, rest = group.partition("/")
    return rest.partition("/")[0] if kind == "pod" else ""


def container_of(group: str) -> str:
    """Name of the container; "": a whole pod, or a tier."""
    return group.partition("/")[2].partition("/")[2] if group.startswith("pod/") else ""
