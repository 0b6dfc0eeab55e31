"""Reads files of Kubernetes objects, as from ``kubectl get -o yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slacktide.agents.files import load_yaml
from slacktide.schemas.errors import CaseError, ConfigError, Finding
from slacktide.schemas.queue_objects import QueueObject
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster, read_objects


def cluster_of(files: Sequence[Path], given: Iterable[QueueObject] = ()) -> QueueCluster:
    """Return the objects of files for the rules, after the given ones.

    Raises:
        ConfigError: as ``objects_of``.
        CaseError: an object refers to something invalid.
    """
    return queue_cluster(objects_of(files, given))


def objects_of(files: Sequence[Path], given: Iterable[QueueObject] = ()) -> list[QueueObject]:
    """Read files; a later object replaces an earlier one of the same name.

    Raises:
        ConfigError: a file is unreadable, or an object invalid.
    """
    found = {(type(one).__name__, one.metadata.namespace, one.metadata.name): one for one in given}
    for file in files:
        try:
            for one in read_objects(_items(load_yaml(file))):
                found[type(one).__name__, one.metadata.namespace, one.metadata.name] = one
        except CaseError as exc:
            finding = Finding(file=str(file), field=exc.field, value="unusable", accepted=exc.why)
            raise ConfigError([finding]) from exc
    return list(found.values())


def _items(document: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the items of a List, or the file's one object, each with its path."""
    if not isinstance(document, dict):
        raise CaseError("content", "a Kubernetes object, or a List of them")
    if not str(document.get("kind", "")).endswith("List"):
        yield "", document
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise CaseError("items", "a list of Kubernetes objects")
    for at, one in enumerate(items):
        if not isinstance(one, dict):
            raise CaseError(f"items[{at}]", "a Kubernetes object")
        yield f"items[{at}]", one
