"""Extracts a node's published figures with their arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.batch_resource import batch_because
from slacktide.streams.decisions.resources.free_resource import free_because
from slacktide.streams.decisions.resources.mid_resource import mid_because
from slacktide.streams.decisions.resources.published_floor import floor_because


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The allocatable of one resource and its computation."""

    of: str
    """The field of NodeAllocatable, unit in its name."""
    published: int | None
    """None: not published."""
    because: Because | None
    """None: the figure was not computed; see the record's reason."""
    floored: bool
    """It equals the requests of running pods."""
    emptied_by: str
    """The term that reduced the figure to 0, such as ``high_priority_milli``; "": none."""


_FIGURES: tuple[tuple[str, str, str, Callable[[str, str, Terms], Because]], ...] = (
    ("batch_cpu_milli", "cpu_terms", "milli", batch_because),
    ("batch_mem_bytes", "mem_terms", "bytes", batch_because),
    ("mid_cpu_milli", "mid_cpu_terms", "milli", mid_because),
    ("mid_mem_bytes", "mid_mem_terms", "bytes", mid_because),
    ("free_cpu_milli", "free_cpu_terms", "milli", free_because),
    ("free_mem_bytes", "free_mem_terms", "bytes", free_because),
)


def figures(allocatable: NodeAllocatable) -> list[Figure]:
    """Return up to six figures, in order, without those neither published nor computed."""
    return list(_figures(allocatable))


def _figures(allocatable: NodeAllocatable) -> Iterator[Figure]:
    for of, field, unit, because_of in _FIGURES:
        published: int | None = getattr(allocatable, of)
        terms: Terms = getattr(allocatable, field)
        if published is None and not terms and not of.startswith("batch"):
            continue
        because = _because(of, unit, terms, because_of) if terms else None
        yield Figure(
            of=of,
            published=published,
            because=because,
            floored=of in allocatable.floored,
            emptied_by="" if because is None else emptied_by(because, f"{of.partition('_')[0]}_{unit}"),
        )


def _because(of: str, unit: str, terms: Terms, because_of: Callable[[str, str, Terms], Because]) -> Because:
    """Return the arithmetic; only its terms, if another version wrote the record."""
    try:
        because = floor_because(of, terms) if "floor" in terms else because_of(of, unit, terms)
        because.added()
    except KeyError:
        return Because(of=of, bound="not known here", terms=terms)
    return because


def emptied_by(because: Because, result: str) -> str:
    """Return the term that reduced the figure to 0: the largest subtrahend (of equals the last), or the cap.

    "": the figure is above 0, or there was no amount to subtract from.
    """
    terms = because.terms
    if terms.get(result, 1) > 0:
        return ""
    added = sum(terms[part[1:]] for part in because.adds if part[0] == "+")
    taken = {part[1:]: terms[part[1:]] for part in because.adds if part[0] == "-"}
    if added <= 0:
        return ""
    if taken and sum(taken.values()) >= added:
        return max(reversed(taken), key=lambda name: taken[name])
    return next((name for name in terms if name.startswith("cap_")), "")
