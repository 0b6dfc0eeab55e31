"""Formats a result's arithmetic: a block per figure, a line and bar per term. Bars fall where terms are subtracted."""

from __future__ import annotations

import msgspec

from slacktide.deploy.cli.calc.calculations import Answered
from slacktide.streams.decisions.because import Because

_encoder = msgspec.json.Encoder()
BAR_WIDTH = 40
GIB = 1 << 30


def waterfall(answered: Answered) -> str:
    """Return the case's name, each figure with its terms and the step that bound it, then the output."""
    head = answered.name or "(no name)"
    if answered.calculated is None:
        return f"{head}\n  {answered.line.decode()}\n"
    results = [f"  = {name}: {_encoder.encode(value).decode()}" for name, value in answered.calculated.output.items()]
    return "\n".join([head, *(block(because) for because in answered.calculated.because), *results]) + "\n"


def block(because: Because) -> str:
    """Format one figure. In a sum, each bar starts at the end of the one before it."""
    rows = [f"  {because.of}: {because.bound}"]
    signs = {part[1:]: part[0] for part in because.adds}
    name_width = max(map(len, because.terms), default=0)
    scale = max((because.terms[name] for name, sign in signs.items() if sign == "+"), default=0)
    level: int | float = 0
    for name, value in because.terms.items():
        sign, bar = signs.get(name, " "), ""
        if sign != " ":
            before, level = level, level + value if sign == "+" else level - value
            bar = _bar(before, level, scale)
        elif signs and name == list(because.terms)[-1]:
            bar = _bar(0, value, scale)
        rows.append(f"    {sign} {name:<{name_width}}  {_text_of(name, value):>22}  {bar}".rstrip())
    return "\n".join(rows)


def _bar(start: float, end: float, scale: float) -> str:
    """Draw a bar: full for added parts, hollow for subtracted parts."""
    if scale <= 0:
        return ""
    low, high = sorted(min(BAR_WIDTH, max(0, round(BAR_WIDTH * each / scale))) for each in (start, end))
    return " " * low + ("█" if end >= start else "░") * (high - low)


def _text_of(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value / GIB:,.2f} GiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
