"""Reads objects of files: of a queue, of other kinds with those that they depend on, and rows that users add."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from slacktide.schemas.errors import CaseError, ConfigError, Finding, TextError
from slacktide.schemas.queue_objects import KINDS, KindObject, Metadata, QueueObject
from slacktide.schemas.text import json_of, shown
from slacktide.streams.decisions.queue.job import QUEUE_NAME
from slacktide.streams.decisions.queue.kinds.manifest import Json, Part, value_at
from slacktide.streams.decisions.queue.kinds.pods import GROUP
from slacktide.streams.decisions.queue.kinds.queued import Queued
from slacktide.streams.decisions.queue.kinds.rows import POD, ROWS, TRAIN_JOB, Row
from slacktide.streams.decisions.queue.kinds.table import Table

CONFIG_MAP = "slacktide-queue-kinds"
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
REASONS = {
    "owned": "it follows the object that controls it",
    "managed_by": "spec.managedBy names another controller than its operator",
    "kind": "its kind has no row: label its pods, or add a row to the ConfigMap slacktide-queue-kinds",
    "no_runtime": "its runtime does not exist",
    "old_trainer": "it uses overrides of Kubeflow Trainer 2.0 or 2.1: use 2.2 or newer",
    "cluster_selector": "it runs on a RayCluster that exists: label that RayCluster",
    "not_suspendable": "KubeRay suspends a RayJob only with shutdownAfterJobFinishes: true",
    "autoscaling": "with enableInTreeAutoscaling its number of pods is not known",
    "reserved_name": "a group of workers must not be named head",
    "mode": "only mode cluster makes its pods on the cluster",
    "dynamic_allocation": "dynamic allocation needs maxExecutors",
    "not_gated": "it was created without the scheduling gate slacktide.io/queue: check that the webhook runs",
    "group_count": "all pods of a group need one kueue.x-k8s.io/pod-group-total-count of 1 or more",
    "group_incomplete": "its group has fewer pods than kueue.x-k8s.io/pod-group-total-count",
    "held": "its operator found it invalid",
    "finished": "it is finished, and has no annotation slacktide.io/run-seconds",
}
"""Why an object is not queued."""
_KEYS = re.compile(r"\.(\w+)|\[([0-9]+)\]", re.ASCII)
_PATH = "names separated by dots, such as spec.suspend"
_STATE = '{"condition": TYPE}, or {"path": PATH, "values": [TEXT]}'
_ACCEPTED = {
    "apiVersion": "GROUP/VERSION, such as example.com/v1",
    "kind": "a kind such as Trainer",
    "plural": "the kind's name in paths, such as trainers",
    "path": "names separated by dots; NAME[] is each item of a list",
    "active": "names separated by dots; NAME[] is each item of a list, and * each value of a map",
    "podSets": "1 to 8 pod sets, each with path and name",
    "pods": "1 or 2 selectors of labels, such as example.com/job={metadata.name}",
    "name": "a text of at most 253 characters",
    "operator": "a text",
    **dict.fromkeys(("suspend", "jobs", "unseen", "priorityClass", "managedBy"), _PATH),
    **dict.fromkeys(("replicas", "parallelism", "completions", "template"), _PATH),
    **dict.fromkeys(("settled", "succeeded", "failed", "finished", "held", "ready"), _STATE),
}  # fmt: skip


def own_rows(config_map: Mapping[str, Any], file: str) -> list[Row]:
    """Read the rows of a ConfigMap: each value is a row as JSON.

    Raises:
        ConfigError: a row is invalid; it names the field, and what is accepted.
    """
    findings, rows = [], list[Row]()
    known = {*KINDS, *(one.kind for one in ROWS)}
    for key, text in sorted(Part(config_map.get("data")).map().items()):
        try:
            row: Row = json_of(text if isinstance(text, str) else "", Row, where=key)
        except TextError as exc:
            what, _, at = exc.why.partition(" - at `")
            path = at.strip("`").removeprefix("$")
            keys = tuple(int(number) if number else name for name, number in _KEYS.findall(path))
            name = next((str(one) for one in reversed(keys) if isinstance(one, str)), "")
            with suppress(TextError):
                value = value_at(json_of(text if isinstance(text, str) else "", dict, where=key), keys)
                what = shown(value) if isinstance(value, str | int | list) else what
            accepted = _ACCEPTED.get(name, f"a row as JSON with {', '.join(_ACCEPTED)}")
            findings.append(Finding(file=file, field=f"data.{key}{path}", value=what, accepted=accepted))
            continue
        if row.kind in known:
            accepted = "a kind that has no row yet"
            findings.append(Finding(file=file, field=f"data.{key}.kind", value=row.kind, accepted=accepted))
        known.add(row.kind)
        rows.append(row)
    if findings:
        raise ConfigError(findings)
    return rows


def read_objects(items: Iterable[tuple[str, dict[str, Any]]]) -> list[QueueObject]:
    """Parse objects given with their path.

    Raises CaseError with the path if one is invalid or its kind is unknown, and ConfigError if a row of a kind is.
    """
    found: list[QueueObject] = []
    others = []
    for path, item in items:
        kind = KINDS.get(str(item.get("kind")))
        if kind is None:
            others.append((path, item))
            continue
        try:
            found.append(msgspec.convert(item, kind, strict=False))
        except msgspec.ValidationError as exc:
            what, _, at = str(exc).partition(" - at `")
            raise CaseError(path + at.strip("`").removeprefix("$"), what) from exc
    return [*found, *kind_objects(others)]


def kind_objects(items: Iterable[tuple[str, Json]]) -> Iterator[KindObject]:
    """Yield the objects of other kinds. Raises CaseError with the path of an unknown kind, or ConfigError."""
    objects: dict[tuple[str, ...], list[tuple[str, Json]]] = {}
    rows, runtimes = list[Row](), list[Json]()
    for path, item in items:
        part = Part(item)
        kind, metadata = part["kind"].text(), part["metadata"]
        names = metadata["namespace"].text() or "default", metadata["name"].text()
        if kind == "ConfigMap" and names[1] == CONFIG_MAP:
            rows = own_rows(item, f"{path or 'the file'}: ConfigMap {CONFIG_MAP}")
        elif kind in RUNTIMES:
            runtimes.append(item)
        elif kind == POD.kind and (group := metadata["labels"].texts().get(GROUP)):
            objects.setdefault((kind, names[0], GROUP, group), []).append((path, item))
        else:
            objects[kind, *names] = [(path, item)]
    table = Table(rows)
    kinds = {one.kind for one in table.rows}
    for each in objects.values():
        path, item = each[0]
        if item.get("kind") not in kinds:
            accepted = ", ".join(sorted({*KINDS, *kinds, *RUNTIMES, "ConfigMap " + CONFIG_MAP}))
            raise CaseError(f"{path}.kind", f"{item.get('kind')}; accepted: {accepted}")
        more = runtimes if item["kind"] == TRAIN_JOB.kind else []
        try:
            made = _object(table.read([*(one for _, one in each), *more]), str(item["kind"]))
        except CaseError as exc:
            raise CaseError(f"{path}.{exc.field}", exc.why) from exc
        if made is not None:
            yield made


def _object(read: Queued, kind: str) -> KindObject | None:
    """Return the object; None: it follows another, or is in no queue."""
    metadata: Metadata = read.metadata
    if read.refused == "owned" or (kind == POD.kind and QUEUE_NAME not in (metadata.labels or {})):
        return None
    if read.refused:
        return KindObject(metadata=metadata, kind=kind, left_out=REASONS[read.refused])
    ended = read.finished and "slacktide.io/run-seconds" not in (metadata.annotations or {})
    why = "held" if read.held else "finished" if ended else ""
    return KindObject(metadata=metadata, kind=kind, pod_sets=read.pod_sets, own_class=read.own_class,
                      left_out=REASONS.get(why, ""))  # fmt: skip
