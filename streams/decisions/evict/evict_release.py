"""The amount that an eviction feature requests to release, and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_pod import Amounts

Status = Literal["invalid_config", "nothing_to_release", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The result of one eviction feature."""

    status: Status
    amounts: Amounts
    """Empty unless the status is ``release``; a listed 0 requests nothing."""
    because: tuple[Because, ...]


def invalid(feature: str, **config: int | None) -> Release:
    """Return a release for incomplete or contradictory thresholds."""
    because = Because(of=feature, bound="invalid_config", terms=given(**config))
    return Release(status="invalid_config", amounts={}, because=(because,))


def nothing(of: str, bound: str, terms: Terms) -> Release:
    """Return a release without a shortage; ``bound`` names the reason."""
    because = Because(of=of, bound=bound, terms=terms)
    return Release(status="nothing_to_release", amounts={}, because=(because,))


def given(**terms: float | None) -> Terms:
    """Return the terms that have a value."""
    return {name: value for name, value in terms.items() if value is not None}
