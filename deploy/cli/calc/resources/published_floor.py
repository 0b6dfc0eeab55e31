"""``slacktide calc published_floor``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenPod
from slacktide.streams.decisions.known_pods import REQUEST_FIELDS
from slacktide.streams.decisions.resources.published_floor import published_floor


class Input(Given, frozen=True, kw_only=True):
    """Figures by resource (null: not published), and the node's pods."""

    figures: dict[str, Amount | None]
    pods: list[GivenPod] | None = None


def calculate(given: Input) -> Calculated:
    """Raise published figures to at least the requests of running pods."""
    names = {field: field.replace("mem_bytes", "memory_bytes") for field in REQUEST_FIELDS}
    figures = {field: given.figures[name] for field, name in names.items() if name in given.figures}
    floored = published_floor(figures, given.pods or ())
    return Calculated(
        output={"published": {names[field]: figure for field, figure in floored.figures.items()}},
        because=floored.because,
    )
