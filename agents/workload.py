"""PURE: whether an ending part is being uninstalled (its DaemonSet or Deployment is deleted) or only restarted.

Both send SIGTERM. `kubectl delete -k` deletes the ServiceAccount and RBAC rules before the pods end. `kubectl delete
namespace` may end pods before it deletes the workload, but the namespace is marked as terminating.
"""

from typing import Literal

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.text import answer_of

Standing = Literal["there", "deleted", "refused", "unknown"]
"""State of a workload. ``refused``: this account may not read it; ``unknown``: no usable response."""
_OK, _NOT_FOUND, _REFUSALS = 200, 404, (401, 403)


class _Metadata(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Workload(msgspec.Struct):
    metadata: _Metadata


def path_of(plural: str, name: str) -> str:
    """Return the API path of a workload. ``plural``: ``daemonsets`` or ``deployments``; ``name``: NAMESPACE/NAME."""
    namespace, _, own = name.partition("/")
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}/{own}"


def namespace_of(name: str) -> str:
    """Return the API path of a workload's namespace. ``name``: NAMESPACE/NAME."""
    return f"/api/v1/namespaces/{name.partition('/')[0]}"


def standing(status: int, body: bytes) -> Standing:
    """Return the state of a workload or namespace by the response to GET. One with a deletionTimestamp is deleted."""
    if status == _NOT_FOUND:
        return "deleted"
    if status in _REFUSALS:
        return "refused"
    if status != _OK:
        return "unknown"
    try:
        found: _Workload = answer_of(body, _Workload, where="the workload")
    except TextError:
        return "unknown"
    return "deleted" if found.metadata.deletion_timestamp else "there"


def is_removed(now: Standing, *, was_there: bool) -> bool:
    """Return whether an ending part is being uninstalled.

    If the account could read the workload before, a refusal means that `kubectl delete -k` deleted its rights first.
    """
    return now == "deleted" or (now == "refused" and was_there)
