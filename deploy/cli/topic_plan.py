"""What Kafka needs: its difference from the table of topics, and each part's rights.

``topics acl`` prints the rights as kafka-acls commands, ``topics strimzi`` with the topics as Strimzi resources.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import click
import yaml

from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import count, output_option, show, show_result
from slacktide.schemas.access import AGENT, PARTS, Acl, Part, Resource
from slacktide.schemas.topics import TOPICS, Topic
from slacktide.streams.kafka import TopicState

SIGNS = {"create": "+", "set": "~", "differs": "!"}
NAMES = {part.name: part for part in PARTS}
VERSION = "kafka.strimzi.io/v1beta2"
CLUSTER_LABEL = "strimzi.io/cluster"
QUOTAS = ("producerByteRate", "consumerByteRate", "requestPercentage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between table and cluster."""

    topic: str
    kind: Literal["create", "set", "differs"]
    """create, set: ``topics apply`` does it. differs: it cannot be changed in place."""
    text: str
    config: Mapping[str, str]
    """The settings to change."""


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


@click.command(name="acl", epilog="Example: slacktide topics acl agent --bootstrap kafka-1:9092 | sh")
@click.argument("parts", nargs=-1, type=click.Choice(list(NAMES)), metavar=f"[{'|'.join(NAMES)}]...")
@settings.option(
    "--bootstrap",
    type=settings.HostPort(),
    default=settings.LOOPBACK_BROKER,
    help="Broker address that the printed commands contain.",
)
@click.option(
    "--command-config", type=settings.file(), help="Client configuration file that the printed commands contain."
)
@output_option("commands", "json", short=False)
def acl_command(parts: tuple[str, ...], *, bootstrap: str, command_config: Path | None, output: str) -> None:
    """Print the minimal ACLs of each PART as kafka-acls commands. Without PART, print those of all parts.

    The command does not connect to Kafka. `slacktide up` needs the ACLs of publisher, agent, stream and console, and
    those of topics if topics are missing.

    With --output json: [{"part": NAME, "what": TEXT, "principal": TEXT, "acls": [{"operation": NAME, "resource":
    "topic" | "group" | "cluster", "name": TEXT}, ...]}, ...]; all literal, all from any host.
    """
    wanted = [NAMES[name] for name in parts] or PARTS
    where = bootstrap if command_config is None else f"{bootstrap} --command-config {command_config}"
    plain = [{"part": part.name, "what": part.what, "principal": part.principal, "acls": part.acls} for part in wanted]
    show_result(plain, output, lambda: "\n\n".join("\n".join(_commands(part, where)) for part in wanted))


def _commands(part: Part, where: str) -> Iterator[str]:
    yield f"# {part.name}: {part.what}"
    for (operation, resource), acls in groupby(part.acls, lambda acl: (acl.operation, acl.resource)):
        head = f"kafka-acls --bootstrap-server {where} --add --allow-principal {part.principal}"
        on = ["--cluster"] if resource == "cluster" else [f"--{resource} {acl.name}" for acl in acls]
        yield " \\\n  ".join([f"{head} --operation {operation}", *on])


@click.command(name="strimzi", epilog="Example: slacktide topics strimzi --cluster prod | kubectl apply -n kafka -f -")
@click.option("--cluster", required=True, help="Name of Strimzi's Kafka resource.")
@click.option("--replicas", type=click.IntRange(1), default=3, show_default=True, help="Most replicas of a topic.")
@click.option(
    "--agent-quota",
    type=(click.IntRange(1), click.IntRange(1)),
    metavar="PRODUCE CONSUME",
    help="Quotas of all agents together, in bytes per second and broker.",
)
@click.option(
    "--agent-request-percent",
    type=click.IntRange(1),
    metavar="PERCENT",
    help="Quota of all agents together for each broker's request and network threads. 100 is one thread.",
)
def strimzi_command(
    *, cluster: str, replicas: int, agent_quota: tuple[int, int] | None, agent_request_percent: int | None
) -> None:
    """Print KafkaTopic and KafkaUser resources for Strimzi: every topic, and each part's user with its ACLs.

    The command does not connect to Kafka. Users log in by SCRAM-SHA-512. Strimzi makes a Secret with
    the password for each. The names are the principals that `slacktide topics acl` prints.
    """
    found = []
    for topic in TOPICS:
        copies = min(topic.replication, replicas)
        spec = {"partitions": topic.partitions, "replicas": copies, "config": topic.config(copies)}
        found.append(_resource("KafkaTopic", topic.name, cluster, spec))
    limits = dict(zip(QUOTAS, (*(agent_quota or (None, None)), agent_request_percent), strict=True))
    quotas = {name: limit for name, limit in limits.items() if limit is not None}
    for part in PARTS:
        user: dict[str, Any] = {
            "authentication": {"type": "scram-sha-512"},
            "authorization": {"type": "simple", "acls": list(_acls(part))},
        }
        if part is AGENT and quotas:
            user["quotas"] = quotas
        found.append(_resource("KafkaUser", part.principal.removeprefix("User:"), cluster, user))
    show(yaml.safe_dump_all(found, sort_keys=False, width=1_000), nl=False)


def _resource(kind: str, name: str, cluster: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {CLUSTER_LABEL: cluster}}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _acls(part: Part) -> Iterator[dict[str, Any]]:
    """Yield one rule per resource, with all operations."""

    def on(acl: Acl) -> tuple[Resource, str]:
        return acl.resource, acl.name

    for (resource, name), acls in groupby(sorted(part.acls, key=on), on):
        where: dict[str, str] = {"type": resource}
        if resource != "cluster":  # it has no name
            where |= {"name": name, "patternType": "literal"}
        yield {"resource": where, "operations": [acl.operation for acl in acls], "host": "*"}
