"""When which certificate is served and trusted, so that at no moment one is served that is not trusted. Pure.

A certificate signs itself, and what signs nothing else needs no authority whose key could be lost. Its successor is
made while it is still good for long, is trusted at once and served only when that has been known for a while; the one
before stays trusted until the next turn, for a replica that has not seen the change yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

LIFE_MS = 90 * 24 * 3_600_000
SETTLE_MS = 60_000
"""How long every API server of the cluster has to learn what is trusted: some hundred times what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate that signs itself, and its key."""

    certificate: bytes
    """PEM."""
    key: bytes
    """PEM."""
    until_ms: int
    """UTC epoch milliseconds."""
    names: frozenset[str]
    """DNS names and addresses that it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The pairs that replicas share."""

    served: Pair
    following: Pair | None = None
    """Trusted already, served soon."""
    trusted_ms: int | None = None
    """Since when all webhook configurations are known to trust the following one."""
    retired: bytes = b""
    """PEM of the certificate that was served before."""

    @property
    def bundle(self) -> bytes:
        """PEM of all that is trusted."""
        following = b"" if self.following is None else self.following.certificate
        return self.retired + self.served.certificate + following


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How certificates live."""

    names: frozenset[str]
    life_ms: int = LIFE_MS
    settle_ms: int = SETTLE_MS


def turned(held: Held | None, terms: Terms, make: Callable[[], Pair], *, trusted: bool, now_ms: int) -> Held:
    """The next step, or ``held`` itself where none is due.

    Args:
        held: what the replicas share; None: nothing yet.
        terms: how certificates live.
        make: makes a new pair.
        trusted: whether all webhook configurations trust all of ``held.bundle``.
        now_ms: UTC epoch milliseconds.

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
    """Nothing that is trusted is served now, so that whatever comes is no worse."""
    if held is None or held.following is None or now_ms >= held.following.until_ms:
        return Held(served=make())
    return _next(held)


def _next(held: Held) -> Held:
    """The following one is served; the bundle stays as it was."""
    assert held.following is not None, "asked before"
    return Held(served=held.following, retired=held.served.certificate)


def _is_due(served: Pair, terms: Terms, now_ms: int) -> bool:
    """A third of its life is left, or it is for other names."""
    return now_ms >= served.until_ms - terms.life_ms // 3 or served.names != terms.names
