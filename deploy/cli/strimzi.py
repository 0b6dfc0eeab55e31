"""``slacktide topics strimzi``: topics and users as Strimzi resources, from the same tables as `acl`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import click
import yaml

from slacktide.schemas.access import AGENT, PARTS, Acl, Part, Resource
from slacktide.schemas.topics import TOPICS, Topic

VERSION = "kafka.strimzi.io/v1beta2"
CLUSTER_LABEL = "strimzi.io/cluster"
QUOTAS = ("producerByteRate", "consumerByteRate", "requestPercentage")


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
def command(
    *, cluster: str, replicas: int, agent_quota: tuple[int, int] | None, agent_request_percent: int | None
) -> None:
    """Print KafkaTopic and KafkaUser resources for Strimzi: every topic, and each part's user with its ACLs.

    The command does not connect to Kafka. Users log in by SCRAM-SHA-512. Strimzi makes a Secret with
    the password for each. The names are the principals that `slacktide topics acl` prints.
    """
    found = [_topic(topic, cluster, min(topic.replication, replicas)) for topic in TOPICS]
    bytes_per_s = agent_quota or (None, None)
    quotas = dict(zip(QUOTAS, (*bytes_per_s, agent_request_percent), strict=True))
    found += [_user(part, cluster, quotas if part is AGENT else {}) for part in PARTS]
    click.echo(yaml.safe_dump_all(found, sort_keys=False, width=1_000), nl=False)


def _resource(kind: str, name: str, cluster: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {CLUSTER_LABEL: cluster}}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _topic(topic: Topic, cluster: str, replicas: int) -> dict[str, Any]:
    spec = {"partitions": topic.partitions, "replicas": replicas, "config": topic.config(replicas)}
    return _resource("KafkaTopic", topic.name, cluster, spec)


def _user(part: Part, cluster: str, quotas: Mapping[str, int | None]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "authentication": {"type": "scram-sha-512"},
        "authorization": {"type": "simple", "acls": list(_acls(part))},
    }
    if given := {name: quota for name, quota in quotas.items() if quota is not None}:
        spec["quotas"] = given
    return _resource("KafkaUser", part.principal.removeprefix("User:"), cluster, spec)


def _acls(part: Part) -> Iterator[dict[str, Any]]:
    """Yield one rule per resource, with all operations."""
    for (resource, name), acls in groupby(sorted(part.acls, key=_on), _on):
        where: dict[str, str] = {"type": resource}
        if resource != "cluster":  # it has no name
            where |= {"name": name, "patternType": "literal"}
        yield {"resource": where, "operations": [acl.operation for acl in acls], "host": "*"}


def _on(acl: Acl) -> tuple[Resource, str]:
    return acl.resource, acl.name
