"""Decides how much memory of which best-effort pods is reclaimed before any pod is evicted.

The kernel counts page cache as available (``MemAvailable``), so evictions do not go by it. Two needs differ:

- Free memory: reclaimed page cache becomes free. Then a latency-sensitive pod that allocates does not wait for the
  kernel to reclaim, which takes from all pods. Wanted free is what lies between the two thresholds.
- Used memory: only what goes to swap lowers it, so that fewer pods are evicted. There is no such need without swap.

Each step is small, and pressure is the brake, as in Meta's senpai (facebookincubator/senpai) and in the kernel's
Documentation/admin-guide/cgroup-v2.rst, ``memory.reclaim``. No pod beside those of the look is ever named.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from slacktide.schemas.message import Terms

RULE = "BEMemoryReclaim"
STEP_PCT = 1
"""Most of a node's memory that one step, about a second, asks for."""
ASK_BYTES_MIN = 1 << 20
"""Less is not worth a write."""
RISES_PERMILLE: Mapping[str, int] = {"ls_mem": 5, "ls_io": 20, "io_full": 20}
"""A step is the last one for a while if a stall rises by more than this, in thousandths of the time between two steps,
above what it was before the first step."""
PAUSE_MS_MIN, PAUSE_MS_MAX = 2_000, 64_000
"""Pause after a rise. It doubles each time, and is short again after the longest pause without a rise."""
REST_MS_MIN, REST_MS_MAX = 10_000, 640_000
"""Rest of a pod that freed little. It doubles each time until a step frees enough."""
FREED_PCT_MIN = 10
"""Of what was asked; less is little."""
STALE_MS = 5_000
"""Stalls over a longer time are those before a first step."""

Bound = Literal["unknown", "below_threshold", "evicts", "enough_free", "no_stalls", "paused", "nobody", "reclaims"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """What the kernel could take from one best-effort pod."""

    uid: str
    inactive_file_bytes: int
    """Page cache that was not used lately."""
    swappable_bytes: int = 0
    """Anonymous memory that was not used lately, up to what the pod may still swap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLook:
    """A node's memory now, and its stalls since the previous look."""

    now_ms: int
    """Monotonic."""
    span_ms: int
    """Since the previous look; 0: there was none."""
    free_bytes: int | None
    """``MemFree``; None: unknown."""
    swap_free_bytes: int = 0
    stalls_permille: Mapping[str, int] = field(default_factory=dict)
    """By the names of ``RISES_PERMILLE``. One that cannot be read is left out."""
    pods: Sequence[PodMemory] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLines:
    """A node's memory and use in bytes, and the thresholds in percent of it."""

    capacity_bytes: int | None
    used_bytes: int | None
    threshold_pct: int
    evict_pct: int


@dataclass(frozen=True, slots=True)
class Rest:
    """A pod that freed little."""

    until_ms: int
    rest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimState:
    """What is remembered between steps."""

    calm_permille: Mapping[str, int] | None = None
    """Stalls before the first step; None: not known yet."""
    paused_until_ms: int = 0
    pause_ms: int = 0
    """The last pause; 0: none lately."""
    paused_by: str = ""
    rests: Mapping[str, Rest] = field(default_factory=dict)
    """By uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Memory to reclaim from one pod."""

    uid: str
    ask_bytes: int
    swap_bytes: int
    """What of it must go to swap to help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimStep:
    """One step: whom to ask for how much, and why so much."""

    bound: Bound
    asks: tuple[Ask, ...]
    terms: Terms
    state: ReclaimState


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """What one ask brought."""

    uid: str
    freed_bytes: int
    swapped_bytes: int = 0


def wants(lines: MemoryLines) -> Bound:
    """Return ``reclaims`` if use lies between the thresholds, else why no look is needed."""
    capacity, used = lines.capacity_bytes, lines.used_bytes
    if not capacity or used is None:
        return "unknown"
    if used * 100 // capacity >= lines.evict_pct:  # as in ``node_evict.mem_below_line``
        return "evicts"
    return "reclaims" if used * 100 > lines.threshold_pct * capacity else "below_threshold"


def next_step(look: MemoryLook, lines: MemoryLines, state: ReclaimState) -> ReclaimStep:
    """Return what to reclaim now.

    Args:
        look: taken after the previous step's writes.
        lines: of the newest sample.
        state: as the previous step and ``learned`` left it.
    """
    bound, capacity, used, free = wants(lines), lines.capacity_bytes, lines.used_bytes, look.free_bytes
    if bound != "reclaims" or capacity is None or used is None or free is None:
        return _none("unknown" if bound == "reclaims" else bound, {}, replace(state, calm_permille=None))
    terms, free_need, swap_need = _needs(capacity, used, free, look, lines)
    if not (free_need or swap_need):
        return _none("enough_free", terms, replace(state, calm_permille=None))
    state = _braked(look, state)
    if state.calm_permille is None:
        return _none("no_stalls", terms, state)
    if look.now_ms < state.paused_until_ms:
        return _none("paused", terms, state)
    asks = tuple(_asks(look, state, free_need, swap_need, capacity * STEP_PCT // 100))
    terms["asked_bytes"] = sum(ask.ask_bytes for ask in asks)
    return ReclaimStep(bound="reclaims" if asks else "nobody", asks=asks, terms=terms, state=state)


def learned(state: ReclaimState, asks: Sequence[Ask], freed: Sequence[Freed], now_ms: int) -> ReclaimState:
    """Return the state after the writes: pods that freed little rest."""
    rests = {uid: rest for uid, rest in state.rests.items() if now_ms < rest.until_ms + REST_MS_MAX}
    by_uid = {one.uid: one for one in freed}
    for ask in asks:
        got = by_uid.get(ask.uid)
        # Swap alone is wanted: page cache that was freed instead does not help.
        useful = 0 if got is None else got.swapped_bytes if ask.swap_bytes >= ask.ask_bytes else got.freed_bytes
        if useful * 100 >= ask.ask_bytes * FREED_PCT_MIN:
            rests.pop(ask.uid, None)
        else:
            before = rests.get(ask.uid)
            rest_ms = REST_MS_MIN if before is None else min(2 * before.rest_ms, REST_MS_MAX)
            rests[ask.uid] = Rest(now_ms + rest_ms, rest_ms)
    return replace(state, rests=rests)


def _none(bound: Bound, terms: Terms, state: ReclaimState) -> ReclaimStep:
    return ReclaimStep(bound=bound, asks=(), terms=terms, state=state)


def _needs(capacity: int, used: int, free_bytes: int, look: MemoryLook, lines: MemoryLines) -> tuple[Terms, int, int]:
    """Return the arithmetic, what should become free, and what should go to swap; each may be more than one step."""
    wanted = capacity * (lines.evict_pct - lines.threshold_pct) // 100
    above = used - capacity * lines.threshold_pct // 100
    free_need = max(0, wanted - free_bytes)
    swap_need = min(above, look.swap_free_bytes)
    terms: Terms = {
        "capacity_bytes": capacity,
        "used_pct": used * 100 // capacity,
        "threshold_pct": lines.threshold_pct,
        "evict_pct": lines.evict_pct,
        "wanted_free_bytes": wanted,
        "free_bytes": free_bytes,
        "above_bytes": above,
        "swap_free_bytes": look.swap_free_bytes,
        "step_bytes": capacity * STEP_PCT // 100,
    }
    return terms, free_need, swap_need


def _braked(look: MemoryLook, state: ReclaimState) -> ReclaimState:
    """Compare stalls with those before the first step. While paused, and before a first step, they are learned."""
    stalls = look.stalls_permille
    if look.span_ms <= 0 or not stalls:  # without pressure there is no brake
        return replace(state, calm_permille=None)
    if state.calm_permille is None or look.span_ms > STALE_MS or look.now_ms < state.paused_until_ms:
        return replace(state, calm_permille=dict(stalls))
    calm = state.calm_permille
    rises = {name: stalls[name] - calm[name] for name in RISES_PERMILLE if name in stalls and name in calm}
    over = [name for name, rise in rises.items() if rise > RISES_PERMILLE[name]]
    if over:
        pause_ms = min(max(PAUSE_MS_MIN, 2 * state.pause_ms), PAUSE_MS_MAX)
        by = ", ".join(f"{name} {calm[name]} to {stalls[name]} permille" for name in over)
        return replace(state, paused_until_ms=look.now_ms + pause_ms, pause_ms=pause_ms, paused_by=by)
    if state.pause_ms and look.now_ms - state.paused_until_ms > PAUSE_MS_MAX:
        return replace(state, pause_ms=0, paused_by="")
    return state


def _asks(look: MemoryLook, state: ReclaimState, free_need: int, swap_need: int, most: int) -> Iterator[Ask]:
    """Share the needs out: the pod with most unused page cache first, and page cache of all before any swap."""
    order = sorted(look.pods, key=lambda one: (-one.inactive_file_bytes, -one.swappable_bytes, one.uid))
    pods = [pod for pod in order if pod.uid not in state.rests or look.now_ms >= state.rests[pod.uid].until_ms]
    files = _shared(min(free_need, most), [pod.inactive_file_bytes for pod in pods])
    swaps = _shared(min(swap_need, most - sum(files)), [pod.swappable_bytes for pod in pods])
    for pod, file_bytes, swap_bytes in zip(pods, files, swaps, strict=True):
        if file_bytes + swap_bytes >= ASK_BYTES_MIN:
            yield Ask(uid=pod.uid, ask_bytes=file_bytes + swap_bytes, swap_bytes=swap_bytes)


def _shared(need: int, amounts: Sequence[int]) -> list[int]:
    """Take the need from the amounts, in their order."""
    parts = []
    for amount in amounts:
        parts.append(min(need, amount))
        need -= parts[-1]
    return parts
