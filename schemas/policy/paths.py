"""How a strategy's field is called in front of an operator: as in the ConfigMap."""

from __future__ import annotations

from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.names import name_of

_CONFIGS = {config.strategy: config for config in CONFIGS}


def path_of(strategy: str, field: str) -> str:
    """Such as ``resource-threshold-config.cpuSuppressMinPercent``."""
    config = _CONFIGS[strategy]
    return f"{config.key}.{name_of(type(config.default), field)}"


def key_of(strategy: str) -> str:
    """The key of the ConfigMap's data."""
    return _CONFIGS[strategy].key
