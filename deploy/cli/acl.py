"""``slacktide topics acl``: the minimal ACLs of each part for a cluster with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import orjson

from slacktide.deploy.runtime import settings
from slacktide.schemas.access import PARTS, Acl, Operation, Part, Resource

NAMES = {part.name: part for part in PARTS}


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
@click.option("--output", type=click.Choice(["commands", "json"]), default="commands", show_default=True)
def command(parts: tuple[str, ...], *, bootstrap: str, command_config: Path | None, output: str) -> None:
    """Print the minimal ACLs of each PART as kafka-acls commands. Without PART, print those of all parts.

    The command does not connect to Kafka. `slacktide up` needs the ACLs of publisher, agent, stream and console, and
    those of topics if topics are missing.

    With --output json: [{"part": NAME, "what": TEXT, "principal": TEXT, "acls": [{"operation": NAME, "resource":
    "topic" | "group" | "cluster", "name": TEXT}, ...]}, ...]; all literal, all from any host.
    """
    wanted = [NAMES[name] for name in parts] or PARTS
    if output == "json":
        click.echo(orjson.dumps([_plain(part) for part in wanted], option=orjson.OPT_INDENT_2).decode())
    else:
        where = bootstrap if command_config is None else f"{bootstrap} --command-config {command_config}"
        click.echo("\n\n".join("\n".join(_commands(part, where)) for part in wanted))


def _plain(part: Part) -> dict[str, object]:
    return {"part": part.name, "what": part.what, "principal": part.principal, "acls": part.acls}


def _commands(part: Part, where: str) -> Iterator[str]:
    yield f"# {part.name}: {part.what}"
    for (operation, resource), acls in groupby(part.acls, _kind):
        head = f"kafka-acls --bootstrap-server {where} --add --allow-principal {part.principal}"
        on = ["--cluster"] if resource == "cluster" else [f"--{resource} {acl.name}" for acl in acls]
        yield " \\\n  ".join([f"{head} --operation {operation}", *on])


def _kind(acl: Acl) -> tuple[Operation, Resource]:
    return acl.operation, acl.resource
