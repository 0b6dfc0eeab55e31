"""A made-up kind of two pod sets, as an operator might have it, and how the queue starts and stops its objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from slacktide.agents.cluster.queue.job import ORIGINAL, begun, change, template_of
from slacktide.agents.cluster.queue.work import Kind, Write, merged
from slacktide.agents.kubernetes.resource import Resource
from slacktide.schemas.queue_objects import Metadata, PodTemplate, WorkloadPodSet
from slacktide.streams.decisions.queue.job import Admission, Conflict
from testbed.filled import FILES

Json = dict[str, Any]
CRD = FILES / "trainers.yaml"
TRAINERS = Resource(group="example.com", plural="trainers")


class Trainer:
    """One Trainer: ``spec.halted``, ``spec.roles`` with replicas and a template each, ``status.state``."""

    def __init__(self, raw: msgspec.Raw) -> None:
        given: Json = msgspec.json.decode(raw)
        self.metadata = msgspec.convert(given["metadata"], Metadata)
        self.version = str(given["metadata"]["resourceVersion"])
        self.state = str(given.get("status", {}).get("state", ""))
        self.suspended = bool(given["spec"]["halted"])
        self._roles: list[Json] = given["spec"]["roles"]
        original = (self.metadata.annotations or {}).get(ORIGINAL)
        self._was: list[Json] = self._roles if original is None else msgspec.json.decode(original)

    @property
    def pod_sets(self) -> list[WorkloadPodSet]:
        return [
            WorkloadPodSet(
                name=one["name"], count=one["replicas"], template=msgspec.convert(one["template"], PodTemplate)
            )
            for one in self._was
        ]

    @property
    def pods_now(self) -> Mapping[str, int]:
        return {one["name"]: one["replicas"] for one in self._roles}

    @property
    def done(self) -> Mapping[str, int]:
        """All its pods are needed to the end."""
        return {}

    @property
    def settled(self) -> bool:
        return self.state == "Halted"

    @property
    def ready(self) -> bool:
        return self.state == "Ready"

    @property
    def finished(self) -> bool:
        return self.state == "Done"

    @property
    def pods(self) -> str:
        """By a label that its controller sets."""
        return f"example.com/trainer={self.metadata.name}"

    def start(self, admitted: Mapping[str, Admission]) -> Json | Conflict:
        """A merge patch replaces a list as a whole."""
        roles = []
        for one in self._roles:
            template = template_of(one["template"])
            made = begun(template, admitted[one["name"]])
            if isinstance(made, Conflict):
                return made
            roles.append({**one, "template": merged(one["template"], change(template, made[0]))})
        annotations = {ORIGINAL: msgspec.json.encode(self._roles).decode()}
        return {"metadata": {"annotations": annotations}, "spec": {"halted": False, "roles": roles}}

    def stop(self) -> Json:
        return {"spec": {"halted": True}}

    def back(self) -> Write | None:
        if self._was is self._roles:
            return None
        return Write("restore", {"metadata": {"annotations": {ORIGINAL: None}}, "spec": {"roles": self._was}})


TRAINER = Kind("Trainer", TRAINERS, Trainer)


def trainer(name: str, queue: str, **replicas: int) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m"}}}
    roles = [
        {"name": role, "replicas": count, "template": {"spec": {"containers": [container]}}}
        for role, count in replicas.items()
    ]
    return {
        "apiVersion": "example.com/v1",
        "kind": "Trainer",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"halted": True, "roles": roles},
    }
