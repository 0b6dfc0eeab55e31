"""Formats the policy of one node as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from slacktide.agents.files import load_yaml
from slacktide.deploy.runtime.text import table
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.policy import Parsed
from slacktide.schemas.policy.configmap import CONFIGS, key_of, path_of
from slacktide.schemas.policy.effective import DEFAULT_SOURCE, Effective, effective
from slacktide.schemas.policy.features import CARRIED_OUT
from slacktide.schemas.policy.idle import idle, lacking, not_taken
from slacktide.schemas.policy.keys import leaves, value_at


def value_text(value: object) -> str:
    """Format a value as JSON, without needless quotes; unset: a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()


OFF = "off"
STANDARD_INPUT = Path("/dev/stdin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One field, or a section with only default values."""

    field: str
    value: object
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """One feature."""

    feature: str
    state: str
    """``acts``, ``not built yet`` (configured without effect) or ``off``."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InVain:
    """A field without effect."""

    field: str
    value: object
    source: str
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

    def json(self) -> str:
        """Format one JSON object."""
        return msgspec.json.format(msgspec.json.encode(asdict(self)), indent=2).decode()


def described_node(path: Path, name: str | None) -> Described:
    """Return the node in a file, alone or in a List. Raises ConfigError if it is missing or invalid."""
    given = STANDARD_INPUT if str(path) == "-" else path
    return described(load_yaml(given), str(given), name)


def report(parsed: Parsed, node: Described) -> Report:
    """Return the policy of the node, and the active features."""
    found = effective(parsed.policy, node.facts)
    return Report(
        node=node.facts.name,
        version=parsed.policy.version,
        fields=[
            Row(
                field=path_of(config.strategy, field),
                value=value,
                source=str(found.source(f"{config.strategy}.{field}")),
            )
            for config in CONFIGS
            for field, value in leaves(getattr(found, config.strategy))
        ],
        features=list(_features(found)),
        without_effect=[
            InVain(
                field=path_of(one.strategy, one.field),
                value=value_at(getattr(found, one.strategy), one.field),
                source=str(one.source),
                because=one.because,
            )
            for one in idle(found)
        ],
        shadowed=[f"{key_of(strategy)}: {name}" for strategy, names in found.shadowed.items() for name in names],
        not_taken=[f"{what}: {why}" for what, why in not_taken(node.facts)],
    )


def _features(found: Effective) -> Iterator[FeatureRow]:
    for feature, lack in lacking(found).items():
        if lack:
            yield FeatureRow(feature=feature.name, state=OFF, why=lack)
        elif feature.name in CARRIED_OUT:
            yield FeatureRow(feature=feature.name, state="acts", why="")
        else:
            yield FeatureRow(feature=feature.name, state="not built yet", why="")


def shown(found: Report, *, changed: bool = False) -> str:
    """Format a table of fields (``changed``: only those set by a layer), features, and fields without effect."""
    rows = [row for row in _collapsed(found.fields) if not changed or row.source != str(DEFAULT_SOURCE)]
    fields = [(row.field, value_text(row.value), row.source) for row in rows]
    features = [(row.feature, row.state, row.why) for row in found.features if not _quiet(row)]
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


def _quiet(row: FeatureRow) -> bool:
    """Return whether the row is a section of a disabled QoS class, which is hidden."""
    return row.state == OFF and row.why.endswith(".enable is false")


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
                    yield Row(field=f"{part}*", value="(defaults)", source=default)
                break
        else:
            yield row
