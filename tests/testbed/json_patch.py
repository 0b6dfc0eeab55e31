"""Applies a JSON patch, as the API server does with a webhook's answer."""

import copy
from collections.abc import Sequence
from typing import Any

from slacktide.agents.cluster.webhook.review import Operation


def applied(document: Any, operations: Sequence[Operation]) -> Any:
    """As RFC 6902 says, for the three operations that webhooks use."""
    root = {"": copy.deepcopy(document)}
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in ["", *operation["path"].split("/")[1:]]]
        place: Any = root
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place[part]
        _apply(operation, place, last)
    return root[""]


def _apply(operation: Operation, place: Any, last: str) -> None:
    if isinstance(place, list):
        at = len(place) if last == "-" else int(last)
        place[at : at + (operation["op"] != "add")] = [] if operation["op"] == "remove" else [operation["value"]]
        return
    assert operation["op"] == "add" or last in place
    if operation["op"] == "remove":
        del place[last]
    else:
        place[last] = operation["value"]
