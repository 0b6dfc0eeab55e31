"""``slacktide publish``: publish policy and inventory from files, without a bridge."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from slacktide.deploy.cli import machine
from slacktide.deploy.cli.machine import OperatorFiles
from slacktide.deploy.cli.up import SHIPPED_POLICY
from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    Kafka,
    configured,
    file,
    folder,
    node_name,
    setting,
    state_folder,
)
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.policy import NodeSource

METRICS_PORT = 9469


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings(process.ProcessSettings):
    """The files to publish, and the Kafka cluster."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    node_name: str = setting("Name of the node, which is the key of its records.", default=node_name, shown="host name")
    policy: Path = setting(
        "File with the ConfigMap slo-controller-config. Reread when it changes. An invalid policy is rejected, "
        "and the last valid one stays in force.",
        file(),
        default=SHIPPED_POLICY,
        shown="the shipped policy: idle best-effort pods, quota above 95%, memory eviction from 70%",
    )
    inventory: Path | None = setting(
        "File with the node, in the format of `kubectl get node -o yaml`. Reread when it changes. Without a Node, "
        "it is this machine.",
        file(),
        default=None,
    )
    node_source: NodeSource = setting(
        "Nodes that workers accept. inventory: nodes with an inventory record. open: also nodes that only send "
        "samples. The published policy record carries it.",
        click.Choice(["inventory", "open"]),
        default="inventory",
    )
    state_folder: Path = setting(
        "Folder for the last valid files. Each process needs its own.",
        folder(exists=False),
        default=state_folder,
        shown="/var/lib/slacktide as root, else $XDG_STATE_HOME/slacktide",
    )
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command(epilog="Example: slacktide publish --bootstrap kafka-1:9092 --policy policy.yaml --node-name db-7")
@configured(PublishSettings)
def command(settings: PublishSettings) -> None:
    """Publish the policy and the inventory of a node to Kafka, each minute and when a file changes.

    `slacktide up` and the bridge do this themselves. The command creates missing topics. It runs until SIGTERM.
    """
    from slacktide.deploy.cli.log_side import LogSide  # noqa: PLC0415 - loads Kafka: not for --help

    itself = partial(machine.node_item, settings.node_name)
    inventory = settings.inventory or machine.inventory(settings.node_name, settings.state_folder)
    files = OperatorFiles(settings.policy, inventory, settings.node_name, settings.state_folder, machine=itself)
    side = LogSide(settings.bootstrap, settings.node_name, settings.node_source)

    async def work(stop: asyncio.Event, health: Health) -> None:
        await side.publish(files, stop, health)

    process.run("publish", settings, work)
