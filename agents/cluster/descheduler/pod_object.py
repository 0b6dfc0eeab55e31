"""Of a pod's object what descheduling reads: a cluster has many, and the most of each is for others.

The names are Kubernetes'; whatever lies deeper is left as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is absent stays so when it is handed on as plain data."""


class Metadata(_Part, frozen=True):
    """Its name, owner, labels and annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Json] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Container(_Part, frozen=True):
    """What it asks for."""

    name: str = ""
    resources: Json | None = None
    restart_policy: str | None = None


class Spec(_Part, frozen=True):
    """What it wants of a node."""

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
    """How it is."""

    phase: str | None = None
    qos_class: str | None = msgspec.field(name="qosClass", default=None)


class PodObject(_Part, frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    def plain(self) -> Json:
        """As the readers of plain data take it."""
        made: Json = msgspec.to_builtins(self)
        return made
