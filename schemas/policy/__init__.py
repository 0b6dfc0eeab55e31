"""The operator's thresholds, from the ConfigMap to what holds on a node.

``strategies`` and ``resource_qos`` list the fields, ``message`` is the record, ``configmap`` reads and checks the
operator's file, ``effective`` finds what is in force on a node and why, ``features`` what acts and what it lacks.
"""

from slacktide.schemas.policy.configmap import Parsed, parse
from slacktide.schemas.policy.message import (
    DEFAULT,
    KEY,
    InForce,
    NodeSource,
    NodeStrategy,
    Policy,
    RefusedFile,
    policy_of,
    read,
    refusal,
    refused_file,
    versioned,
)
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold

__all__ = [
    "DEFAULT",
    "KEY",
    "Colocation",
    "CpuBurst",
    "InForce",
    "NodeSource",
    "NodeStrategy",
    "Parsed",
    "Policy",
    "RefusedFile",
    "ResourceThreshold",
    "parse",
    "policy_of",
    "read",
    "refusal",
    "refused_file",
    "versioned",
]
