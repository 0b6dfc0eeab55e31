"""When a certificate is trusted, served and replaced. A served certificate is always trusted. Pure.

A self-signed certificate needs no authority whose key could leak. Its successor is created early, trusted immediately,
and served after a delay. The former one stays trusted until the next rotation, for replicas that are behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

LIFE_MS = 90 * 24 * 3_600_000
SETTLE_MS = 60_000
"""Time for all API servers to load the new bundle: a hundred times what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A self-signed certificate and its key."""

    certificate: bytes
    """PEM."""
    key: bytes
    """PEM."""
    until_ms: int
    names: frozenset[str]
    """Its DNS names and addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The pairs that replicas share."""

    served: Pair
    following: Pair | None = None
    """Trusted already, served next."""
    trusted_ms: int | None = None
    """When all configurations were first known to trust the next pair."""
    retired: bytes = b""
    """PEM of the former certificate."""

    @property
    def bundle(self) -> bytes:
        """PEM of all trusted certificates."""
        following = b"" if self.following is None else self.following.certificate
        return self.retired + self.served.certificate + following


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Lifetime of certificates."""

    names: frozenset[str]
    life_ms: int = LIFE_MS
    settle_ms: int = SETTLE_MS


def turned(held: Held | None, terms: Terms, make: Callable[[], Pair], *, trusted: bool, now_ms: int) -> Held:
    """Return the next step, or ``held`` itself if none is due.

    ``trusted``: whether all configurations trust all of ``held.bundle``. ``now_ms`` is UTC epoch time.
    """
    if held is None or now_ms >= held.served.until_ms:
        return _anew(held, make, now_ms)
    if held.following is None:
        return replace(held, following=make(), retired=b"") if _is_due(held.served, terms, now_ms) else held
    if not trusted:
        return held if held.trusted_ms is None else replace(held, trusted_ms=None)
    if held.trusted_ms is None:
        return replace(held, trusted_ms=now_ms)
    if now_ms - held.trusted_ms < terms.settle_ms:
        return held
    return _next(held)


def _anew(held: Held | None, make: Callable[[], Pair], now_ms: int) -> Held:
    """Start again: no trusted pair is served now, so nothing is lost."""
    if held is None or held.following is None or now_ms >= held.following.until_ms:
        return Held(served=make())
    return _next(held)


def _next(held: Held) -> Held:
    """Serve the next pair; the bundle stays unchanged."""
    assert held.following is not None, "asked before"
    return Held(served=held.following, retired=held.served.certificate)


def _is_due(served: Pair, terms: Terms, now_ms: int) -> bool:
    """Return whether a third of its lifetime is left, or its names changed."""
    return now_ms >= served.until_ms - terms.life_ms // 3 or served.names != terms.names
