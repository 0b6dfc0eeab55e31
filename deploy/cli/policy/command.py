"""``slacktide policy``: checks a policy file, and shows what applies to a node."""

from __future__ import annotations

from pathlib import Path

import click

from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.policy.compare import compare
from slacktide.deploy.cli.policy.on_node import described_node, report, shown
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime.settings import file
from slacktide.deploy.runtime.text import count, show, show_json
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import parse
from slacktide.schemas.policy.configmap import NAME, path_of
from slacktide.schemas.policy.idle import above_capacity, unused
from slacktide.schemas.policy.reading import did_you_mean


@click.group(cls=Group, epilog="Example: slacktide policy lint policy.yaml")
def command() -> None:
    """Check a policy (the ConfigMap slo-controller-config), and show what it sets on a node."""


command.add_command(compare)


@command.command(epilog="Example: slacktide policy lint policy.yaml")
@click.argument("policy", type=file(), metavar="FILE")
@click.option("--name", default=NAME, show_default=True, help="Name of the ConfigMap that the bridge reads.")
@click.option("--lenient", is_flag=True, help="Accept unknown keys and another ConfigMap name, as the bridge does.")
def lint(policy: Path, name: str, *, lenient: bool) -> None:
    """Check a policy: print invalid fields with the accepted range, fields without effect, and shares above 100%.

    Exit code 1: a value is invalid, a key is unknown, or the ConfigMap has another name. Fields without effect and
    shares above 100% are listed, and pass.
    """
    try:
        document = load_yaml(policy)
        parsed = parse(document, str(policy))
    except ConfigError as exc:
        for finding in exc.findings:
            show(str(finding))
        show(f"{count(len(exc.findings), 'finding')}: the policy is not valid", err=True)
        raise click.exceptions.Exit(1) from exc
    misnamed = _misnamed(document, name)
    for note in (*(f"{policy}: {why}" for why in misnamed), *parsed.notes):
        show(note)
    for one in unused(parsed.policy):
        show(f"{policy}: {path_of(one.strategy, one.field)} ({one.source}): no effect: {one.because}")
    for one in above_capacity(parsed.policy):
        show(f"{policy}: {path_of(one.strategy, one.field)} ({one.source}): {one.because}")
    ignored = len(misnamed) + len(parsed.unknown)
    if ignored and not lenient:
        show(f"{count(ignored, 'name')} without effect: correct them, or give --lenient", err=True)
        raise click.exceptions.Exit(1)
    show(f"{policy}: valid, version {parsed.policy.version}")


def _misnamed(document: object, wanted: str) -> list[str]:
    """Return why the bridge ignores this ConfigMap; empty: it does not."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if name == wanted:
        return []
    hint = did_you_mean(str(name), [wanted]) or f"; the bridge reads {wanted}"
    return [f"metadata.name: {name or 'missing'}: no part of Slacktide reads this ConfigMap{hint}"]


@command.command(epilog="Example: slacktide policy effective policy.yaml --node node.yaml")
@click.argument("policy", type=file(), metavar="FILE")
@click.option(
    "--node",
    "node",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    required=True,
    metavar="NODE.yaml",
    help="File with the node, in the format of `kubectl get node -o yaml`, alone or in a List. -: standard input.",
)
@click.option("--name", help="Name of the node, if the List contains several.")
@click.option("--changed", is_flag=True, help="Show only fields in the table that a layer sets.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def effective(policy: Path, node: Path, name: str | None, output: str, *, changed: bool) -> None:
    """Show the policy of a node: each field's value, the layer that set it, and whether it has an effect."""
    parsed = parse(load_yaml(policy), str(policy))
    described = described_node(node, name)
    found = report(parsed, described)
    show_json(found.json()) if output == "json" else show(shown(found, changed=changed))
