"""Compares the table of topics with a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.deploy.runtime.text import count
from slacktide.schemas.topics import Topic
from slacktide.streams.kafka import TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between table and cluster."""

    topic: str
    kind: Literal["create", "set", "differs"]
    """create, set: ``topics apply`` does it. differs: it cannot be changed in place."""
    text: str
    config: Mapping[str, str]
    """The settings to change."""


SIGNS = {"create": "+", "set": "~", "differs": "!"}


def changes(table: Sequence[Topic], there: Mapping[str, TopicState], brokers: int) -> list[Change]:
    """Compare the table with the cluster; empty: they agree."""
    found = []
    for topic in table:
        state = there.get(topic.name)
        replication = min(topic.replication, brokers)
        if state is not None:
            found += _differences(topic, state, replication)
            continue
        config = topic.config(replication)
        limited = f" of {topic.replication} ({count(brokers, 'broker')})" if replication < topic.replication else ""
        settings = " ".join(f"{name}={value}" for name, value in config.items())
        text = f"{count(topic.partitions, 'partition')}, replication {replication}{limited}, {settings}"
        found.append(Change(topic=topic.name, kind="create", text=text, config=config))
    return found


def _differences(topic: Topic, state: TopicState, replication: int) -> list[Change]:
    found = []
    # A setting that the broker does not report counts as equal: a change could not be verified either.
    config = {
        name: value
        for name, value in topic.config(state.replication).items()
        if state.config and state.config.get(name) != value
    }
    if config:
        text = ", ".join(f"{name} {state.config.get(name, 'not set')} -> {value}" for name, value in config.items())
        found.append(Change(topic=topic.name, kind="set", text=text, config=config))
    if state.partitions != topic.partitions:
        text = (
            f"{count(state.partitions, 'partition')}, but the table has {topic.partitions}: not changed, "
            "because keys would move to other partitions; all topics keyed by node must have the same count"
        )
        found.append(Change(topic=topic.name, kind="differs", text=text, config={}))
    if state.replication < replication:
        text = (
            f"replication {state.replication}, but {replication} is possible: not changed; use "
            "kafka-reassign-partitions"
        )
        found.append(Change(topic=topic.name, kind="differs", text=text, config={}))
    return found


def plan_text(found: Sequence[Change]) -> str:
    """Format the plan as lines, with a summary."""
    if not found:
        return "nothing to do: all topics match the table of topics"
    lines = [f"{SIGNS[change.kind]} {change.topic}: {change.text}" for change in found]
    counts = {kind: sum(change.kind == kind for change in found) for kind in SIGNS}
    lines.append(
        f"{counts['create']} to create, {counts['set']} to change, {counts['differs']} with differences that are "
        "not changed"
    )
    return "\n".join(lines)
