"""``slacktide policy``: checks a policy file, and shows what applies to a node."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.policy_compare import compare
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime.settings import file
from slacktide.deploy.runtime.text import count, output_option, show, show_result, table
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.policy import Parsed, parse
from slacktide.schemas.policy.configmap import CONFIGS, NAME, key_of, path_of
from slacktide.schemas.policy.effective import DEFAULT_SOURCE, effective
from slacktide.schemas.policy.features import CARRIED_OUT
from slacktide.schemas.policy.idle import above_capacity, idle, lacking, not_taken, unused
from slacktide.schemas.policy.keys import leaves, value_at
from slacktide.schemas.policy.reading import did_you_mean

OFF = "off"
STANDARD_INPUT = Path("/dev/stdin")


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
    metadata = document.get("metadata") if isinstance(document, dict) else None
    named = metadata.get("name") if isinstance(metadata, dict) else None
    misnamed = named != name
    if misnamed:
        hint = did_you_mean(str(named), [name]) or f"; the bridge reads {name}"
        show(f"{policy}: metadata.name: {named or 'missing'}: no part of Slacktide reads this ConfigMap{hint}")
    for note in parsed.notes:
        show(note)
    for one in unused(parsed.policy):
        show(f"{policy}: {path_of(one.strategy, one.field)} ({one.source}): no effect: {one.because}")
    for one in above_capacity(parsed.policy):
        show(f"{policy}: {path_of(one.strategy, one.field)} ({one.source}): {one.because}")
    ignored = misnamed + len(parsed.unknown)
    if ignored and not lenient:
        show(f"{count(ignored, 'name')} without effect: correct them, or give --lenient", err=True)
        raise click.exceptions.Exit(1)
    show(f"{policy}: valid, version {parsed.policy.version}")


@command.command(name="effective", epilog="Example: slacktide policy effective policy.yaml --node node.yaml")
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
@output_option("table", "json", short=False)
def effective_(policy: Path, node: Path, name: str | None, output: str, *, changed: bool) -> None:
    """Show the policy of a node: each field's value, the layer that set it, and whether it has an effect."""
    parsed = parse(load_yaml(policy), str(policy))
    given = STANDARD_INPUT if str(node) == "-" else node
    found = _report(parsed, described(load_yaml(given), str(given), name))
    show_result(found, output, lambda: _shown(found, changed=changed))


def value_text(value: object) -> str:
    """Format a value as JSON, without needless quotes; unset: a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()


@dataclass(frozen=True, slots=True)
class Row:
    """One field, or a section with only default values."""

    field: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """One feature."""

    feature: str
    state: str
    """``acts``, ``not built yet`` (configured without effect) or ``off``."""
    why: str


@dataclass(frozen=True, slots=True)
class InVain(Row):
    """A field without effect."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The complete report of a node."""

    node: str
    version: str
    fields: list[Row]
    features: list[FeatureRow]
    without_effect: list[InVain]
    shadowed: list[str]
    """Node strategies that also match, after the first match."""
    not_taken: list[str]
    """Ignored annotations and labels of the node."""


def _report(parsed: Parsed, node: Described) -> Report:
    """Return the policy of the node, and the active features."""
    found = effective(parsed.policy, node.facts)
    return Report(
        node=node.facts.name,
        version=parsed.policy.version,
        fields=[
            Row(path_of(config.strategy, field), value, str(found.source(f"{config.strategy}.{field}")))
            for config in CONFIGS
            for field, value in leaves(getattr(found, config.strategy))
        ],
        features=[
            FeatureRow(feature.name, OFF if lack else "acts" if feature.name in CARRIED_OUT else "not built yet", lack)
            for feature, lack in lacking(found).items()
        ],
        without_effect=[
            InVain(
                path_of(one.strategy, one.field),
                value_at(getattr(found, one.strategy), one.field),
                str(one.source),
                one.because,
            )
            for one in idle(found)
        ],
        shadowed=[f"{key_of(strategy)}: {name}" for strategy, names in found.shadowed.items() for name in names],
        not_taken=[f"{what}: {why}" for what, why in not_taken(node.facts)],
    )


def _shown(found: Report, *, changed: bool) -> str:
    """Format a table of fields (``changed``: only those set by a layer), features, and fields without effect."""
    rows = [row for row in _collapsed(found.fields) if not changed or row.source != str(DEFAULT_SOURCE)]
    fields = [(row.field, value_text(row.value), row.source) for row in rows]
    features = [
        (row.feature, row.state, row.why)
        for row in found.features
        if row.state != OFF or not row.why.endswith(".enable is false")  # a section of a disabled QoS class
    ]
    vain = [(one.field, value_text(one.value), one.source, one.because) for one in found.without_effect]
    return "\n\n".join([
        f"node {found.node}, policy {found.version}",
        table(("FIELD", "VALUE", "FROM"), fields),
        table(("FEATURE", "STATE", "WHY"), features),
        *([table(("WITHOUT EFFECT", "VALUE", "FROM", "BECAUSE"), vain)] if vain else []),
        *_listed("an earlier node strategy applies instead of these, which also match:", found.shadowed),
        *_listed("set by the node's own annotations and labels:", found.not_taken),
    ])  # fmt: skip


def _listed(title: str, lines: list[str]) -> list[str]:
    return ["\n".join([title, *(f"  {line}" for line in lines)])] if lines else []


def _collapsed(rows: list[Row]) -> Iterator[Row]:
    """Yield one row for a section with only default values, such as a QoS class."""
    seen: set[str] = set()
    default = str(DEFAULT_SOURCE)
    for row in rows:
        names = row.field.split(".")
        for depth in range(2, len(names)):
            part = ".".join(names[:depth]) + "."
            below = [other for other in rows if other.field.startswith(part)]
            if len(below) > 1 and all(other.source == default for other in below):
                if part not in seen:
                    seen.add(part)
                    yield Row(f"{part}*", "(defaults)", default)
                break
        else:
            yield row
