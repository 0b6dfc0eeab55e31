"""A pod that its namespace's quota refused. Topic slacktide.pod.refused.v1, key: the namespace."""

from __future__ import annotations

from slacktide.schemas.bounds import Name, TimeMs, Total
from slacktide.schemas.message import Message


class RefusedPod(Message, frozen=True, kw_only=True):
    """Nothing of it is stored: its controller tries again. A controller's retry is another record."""

    namespace: Name
    name: Name
    """Where Kubernetes makes the name, its beginning with the ``-``."""
    resource: str
    """A field of ``Resources``, such as ``batch_cpu_milli``."""
    asked: Total
    """What the pod requests of it, in the unit of that field."""
    used: Total
    """What pods of the namespace requested before."""
    bound: Total
    """Of the namespace."""
    refused_ms: TimeMs
