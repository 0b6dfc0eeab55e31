"""Published figures never fall below what runs there asked for.

Slacktide's own. The kubelet checks running pods against the node's allocatable again when it restarts: figures that
fell below their requests, or were removed, would fail pods that do no harm. Keeping the floor places nothing new,
for what is kept is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from slacktide.schemas.inventory import Pod
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.known_pods import REQUEST_FIELDS, known


class Floored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Figures by field of ``Resources``; None: the resource is removed from the node."""

    figures: dict[str, int | None]
    because: tuple[Because, ...]


def published_floor(figures: Mapping[str, int | None], pods: Sequence[Pod]) -> Floored:
    """Raise each figure to what the node's live pods request of it.

    Args:
        figures: by field of ``Resources``; None: stale, degraded or disabled, so none is to be published.
        pods: the node's. Those neither Running nor Pending hold nothing.

    """
    asked = known(pods).asked
    because = tuple([_because(field, figures[field], asked[field]) for field in REQUEST_FIELDS if field in figures])
    kept = {one.of: None if one.bound == "removed" else int(one.terms["published"]) for one in because}
    return Floored(figures=kept, because=because)


def _because(field: str, figure: int | None, floor: int) -> Because:
    if figure is None and floor == 0:
        return floor_because(field, {"floor": 0})
    terms: Terms = {} if figure is None else {"figure": figure}
    return floor_because(field, terms | {"floor": floor, "published": max(figure or 0, floor)})


def floor_because(of: str, terms: Terms) -> Because:
    """How the terms belong together: those just figured, or those that a record holds."""
    if "published" not in terms:
        return Because(of=of, bound="removed", terms=terms)
    return Because(of=of, bound="floored" if terms["floor"] > terms.get("figure", 0) else "formula", terms=terms)
