"""The fields of a pod object that descheduling reads; skipping the others saves memory.

Names are Kubernetes'. Deeper parts stay plain data.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Absent fields stay absent when converted to plain data."""


class Metadata(_Part, frozen=True):
    """Name, owner, labels and annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Json] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Container(_Part, frozen=True):
    """Resources of a container."""

    name: str = ""
    resources: Json | None = None
    restart_policy: str | None = None


class Spec(_Part, frozen=True):
    """Node constraints and containers."""

    node_name: str | None = None
    priority: int | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Json | None = None
    resources: Json | None = None
    volumes: list[Json] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Json | None = None


class Status(_Part, frozen=True):
    """The pod's status."""

    phase: str | None = None
    qos_class: str | None = msgspec.field(name="qosClass", default=None)


class PodObject(_Part, frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    def plain(self) -> Json:
        """As plain data."""
        made: Json = msgspec.to_builtins(self)
        return made
