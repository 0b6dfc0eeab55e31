"""The ways in which batch work and a service share the machine. Pure."""

import json
from dataclasses import dataclass
from typing import Literal

import yaml

ALONE, AGAIN, AWAKE, LEARNED = "alone", "alone again", "awake", "learned cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Where batch work runs, and by which policy the node's agent controls it."""

    name: str
    batch: Literal["none", "burstable", "besteffort"] = "besteffort"
    """No batch work; pods with requests of their own; best-effort pods."""
    awake: bool = False
    """Whether idle-class loops keep the CPUs from sleeping: an idle virtual CPU is slow to wake."""
    threshold_pct: int | None = None
    """Of the suppress rule; None: the rule is off."""
    knob: Literal["cfsQuota", "cpuset"] = "cfsQuota"
    signal: Literal["usage", "pressure"] = "usage"
    idle: bool = False
    """Whether best-effort pods have ``cpu.idle``."""
    learned: bool = False
    """Whether the cap that was learned of the service is in force."""

    def policy_yaml(self) -> str:
        """The ``slo-controller-config`` of this condition."""
        threshold = {
            "enable": self.threshold_pct is not None,
            "cpuSuppressThresholdPercent": self.threshold_pct or 65,
            "cpuSuppressPolicy": self.knob,
            "cpuSuppressSignal": self.signal,
            "memoryEvictThresholdPercent": 99,
        }
        data = {
            "colocation-config": json.dumps({"enable": True, "learnedCaps": "on" if self.learned else "off"}),
            "resource-threshold-config": json.dumps({"clusterStrategy": threshold}),
        }
        if self.idle:
            best_effort = {"cpuQOS": {"enable": True, "schedIdle": 1}}
            qos = {"policies": {"cpuPolicy": "podIdle"}, "beClass": best_effort}
            data["resource-qos-config"] = json.dumps({"clusterStrategy": qos})
        name = {"name": "slo-controller-config", "namespace": "koordinator-system"}
        return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data})


CONDITIONS = (
    Condition(name=ALONE, batch="none"),
    Condition(name=AGAIN, batch="none"),
    Condition(name=AWAKE, batch="none", awake=True),
    Condition(name="no control", batch="burstable"),
    Condition(name="weights"),
    Condition(name="weights, idle", idle=True),
    Condition(name="quota 95%, idle", threshold_pct=95, idle=True),
    Condition(name="quota 65%", threshold_pct=65),
    Condition(name="quota 85%", threshold_pct=85),
    Condition(name="quota 95%", threshold_pct=95),
    Condition(name="pressure", threshold_pct=65, signal="pressure"),
    Condition(name="pressure, idle", threshold_pct=65, signal="pressure", idle=True),
    Condition(name=LEARNED, threshold_pct=65, signal="pressure", idle=True, learned=True),
    Condition(name="CPU set 65%", threshold_pct=65, knob="cpuset"),
)
"""``alone again`` differs from ``alone`` by chance only: it shows what this experiment can tell apart."""
