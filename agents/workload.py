"""PURE: what becomes of a part that ends: is its own DaemonSet or Deployment deleted, or are its pods replaced?

Both end a pod with SIGTERM. `kubectl delete -k` deletes the part's account and rights, too, and before its pods end.
`kubectl delete namespace` may end pods before it deletes the workload: a namespace that is being deleted shows it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Standing = Literal["there", "deleted", "refused", "unknown"]
"""Of a workload: ``refused``: the API server does not let this account read it; ``unknown``: no answer to use."""
_OK, _NOT_FOUND, _REFUSALS = 200, 404, (401, 403)


class _Metadata(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Workload(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Workload)


def path_of(plural: str, name: str) -> str:
    """Where the API server has a workload.

    Args:
        plural: ``daemonsets`` or ``deployments``.
        name: NAMESPACE/NAME.

    """
    namespace, _, own = name.partition("/")
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}/{own}"


def namespace_of(name: str) -> str:
    """Where the API server has the namespace of a workload.

    Args:
        name: NAMESPACE/NAME.

    """
    return f"/api/v1/namespaces/{name.partition('/')[0]}"


def standing(status: int, body: bytes) -> Standing:
    """How a workload, or its namespace, stands by an answer to GET; one with a deletionTimestamp is deleted."""
    if status == _NOT_FOUND:
        return "deleted"
    if status in _REFUSALS:
        return "refused"
    if status != _OK:
        return "unknown"
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "unknown"
    return "deleted" if found.metadata.deletion_timestamp else "there"


def is_removed(now: Standing, *, was_there: bool) -> bool:
    """Whether a part that ends is removed for good.

    Args:
        now: how its workload stands as it ends.
        was_there: the same account could read the workload before. Then a refusal means that the account or its
            right is deleted, as `kubectl delete -k` does first.

    """
    return now == "deleted" or (now == "refused" and was_there)
