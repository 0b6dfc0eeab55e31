"""How a knob of a group is named, wherever it is spoken of: in drift, in settings, to a kernel."""

from __future__ import annotations

from typing import NamedTuple

from slacktide.schemas.knob_table import Knob

TIERS = {"Guaranteed": "tier/guaranteed", "Burstable": "tier/burstable", "BestEffort": "tier/besteffort"}
"""By Kubernetes QoS. Guaranteed pods lie beside the other tiers: theirs is the group that holds all pods."""
BEST_EFFORT_TIER = TIERS["BestEffort"]


class KnobKey(NamedTuple):
    """One knob of one group."""

    group: str
    """``tier/besteffort`` and the like, ``pod/<uid>`` or ``pod/<uid>/<container name>``."""
    knob: Knob

    @property
    def target(self) -> str:
        """What an act on it is about, where an act has an id."""
        return f"{self.group}#{self.knob}"


def pod_group(uid: str) -> str:
    """What a pod's group is called."""
    return f"pod/{uid}"


def container_group(uid: str, name: str) -> str:
    """What a container's group is called."""
    return f"pod/{uid}/{name}"


def uid_of(group: str) -> str:
    """The pod that it is, or is in; "": a tier."""
    kind, _, rest = group.partition("/")
    return rest.partition("/")[0] if kind == "pod" else ""


def container_of(group: str) -> str:
    """The container's name; "": it is a whole pod, or a tier."""
    return group.partition("/")[2].partition("/")[2] if group.startswith("pod/") else ""
