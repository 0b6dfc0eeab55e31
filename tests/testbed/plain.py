"""What rules decide, as cases write it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from slacktide.deploy.cli.calc.queue_quota import written
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode


def plain(value: Any) -> Any:
    """As JSON writes it, less a tuple's defaults; a node by its name, and a flavor's resource as one text."""
    if isinstance(value, (FlavorResource, QuotaNode)):
        return value.name if isinstance(value, QuotaNode) else written(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif hasattr(value, "_asdict"):
        usual = value._field_defaults
        value = {name: one for name, one in value._asdict().items() if name not in usual or one != usual[name]}
    if isinstance(value, Mapping):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return None if isinstance(value, bytes) else value  # a shape, which only has to differ from others
