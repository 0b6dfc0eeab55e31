"""A result's arithmetic for people: one block per figure, a line per term, bars to compare by eye."""

from __future__ import annotations

from slacktide.deploy.cli.calc.calculations import Answered
from slacktide.streams.decisions.because import Because

BAR_WIDTH = 24


def waterfall(answered: Answered) -> str:
    """The case's name, then each figure with its terms in order and the step that bound it."""
    head = f"{answered.name or '(no name)'}"
    if answered.calculated is None:
        return f"{head}\n  {answered.line.decode()}\n"
    return "\n".join([head, *(_block(because) for because in answered.calculated.because)]) + "\n"


def _block(because: Because) -> str:
    """Bars share a scale among terms of one unit, which is the end of their names."""
    rows = [f"  {because.of}: {because.bound}"]
    width = max(map(len, because.terms), default=0)
    for name, value in because.terms.items():
        of_unit = [abs(other) for term, other in because.terms.items() if _unit(term) == _unit(name)]
        length = round(BAR_WIDTH * abs(value) / max(of_unit)) if len(of_unit) > 1 and max(of_unit) else 0
        rows.append(f"    {name:<{width}}  {value:>20,}  {'█' * length}".rstrip())
    return "\n".join(rows)


def _unit(term: str) -> str:
    return term.rpartition("_")[2]
