"""Looks at stalls of many samples at once: whose gate ``cpu_pressure`` leaves open.

Arrays do not fold looks. They find the samples whose open gate no look can close, whatever the baseline becomes
meanwhile, and leave all others to the rule.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from slacktide.schemas.sample import LOOKS_MAX, PAUSE_MS_MAX
from slacktide.schemas.sample_columns import GATE_NUMBERS, LOOK_NUMBERS
from slacktide.schemas.sample_columns_codec import LOOKS
from slacktide.streams.columns.numbers import END, NoNumbersError, numbers, sums
from slacktide.streams.columns.rings import Bools, Ints
from slacktide.streams.decisions.suppress.cpu_pressure import LINE_PERMILLE_MIN, RISE_PERMILLE, RUNS_PERMILLE

NOT_TAKEN, OPEN, UNPROVEN = range(3)
"""A sample has no looks; its gate is open after them; or the rule decides."""
_MOST: Final = 1 << 42
"""Below, no product exceeds 64 bits."""
_BASE, _CLOSED, _PAUSE, _WAIT = 0, 1, 6, 7
_GATE_MOST: Final = [_MOST] * GATE_NUMBERS
_GATE_MOST[_PAUSE] = _GATE_MOST[_WAIT] = PAUSE_MS_MAX


def text_behind(value: bytes, at: int) -> tuple[bytes, int]:
    """Return the numbers of the list ``looks`` at a place of a sample, and where the fields behind it begin.

    A list that does not end is returned as numbers that cannot be parsed.
    """
    begin = at + len(LOOKS)
    end = value.find(b"]", begin)
    return (value[begin:end], end + 2) if end >= 0 else (b"-", len(value))


def gates(texts: Sequence[bytes]) -> Ints:
    """Return what is known of the gate after each sample's looks; b"": it has none."""
    found = np.zeros(len(texts), np.int64)
    if any(texts):
        its = [at for at, text in enumerate(texts) if text]
        found[its] = _parsed([texts[at] for at in its])
    return found


def _parsed(texts: Sequence[bytes]) -> Ints:
    """Parse all lists at once, or each alone if one of them is invalid."""
    try:
        return np.where(_stay_open(texts), OPEN, UNPROVEN)
    except NoNumbersError:
        if len(texts) == 1:
            return np.array([UNPROVEN])
        return np.concatenate([_parsed([text]) for text in texts])


def _stay_open(texts: Sequence[bytes]) -> Bools:
    lengths = np.array([text.count(b",") + 1 for text in texts])
    flat, ends = numbers(texts), np.cumsum(lengths + 1) - 1
    taken, rest = np.divmod(lengths - GATE_NUMBERS, LOOK_NUMBERS)
    if len(flat) != ends[-1] + 1 or (flat[ends] != END).any() or rest.any():
        raise NoNumbersError("a list does not consist of a gate and looks")
    if taken.min() < 0 or taken.max() > LOOKS_MAX:
        raise NoNumbersError("a list has too many looks, or no gate")
    places = (ends - lengths)[:, None] + np.arange(GATE_NUMBERS)
    of_looks = np.ones(len(flat), np.bool_)
    of_looks[places.ravel()] = of_looks[ends] = False
    its, looks = flat[places], flat[of_looks].reshape(-1, LOOK_NUMBERS)
    odd = ((looks < 0) | (looks > _MOST)).any(1)
    good: Bools = ((its >= 0) & (its <= _GATE_MOST)).all(1) & (its[:, _CLOSED] == 0)
    good &= sums((odd | _may_cut(looks, its[:, _BASE], taken)).astype(np.int64), taken) == 0
    return good


def _may_cut(looks: Ints, bases: Ints, taken: Ints) -> Bools:
    """Find the looks that close an open gate, by ``cpu_pressure.step``; it may be fewer.

    The baseline changes only in looks without best-effort work: then the line is at least ``LINE_PERMILLE_MIN``.
    """
    span, ls_cpu, be_cpu, idle, cpu_stall, mem_stall, throttled = looks.T
    ran = np.maximum(np.maximum(ls_cpu, 1), span * RUNS_PERMILLE // 1_000)
    mem_permille = mem_stall * 1_000 // ran
    stall_permille = np.maximum(cpu_stall - throttled, 0) * 1_000 // ran + mem_permille
    runs = be_cpu * 1_000 // np.maximum(span, 1) > RUNS_PERMILLE
    steady = sums((~runs).astype(np.int64), taken) == 0
    lines = np.where(steady, np.maximum(LINE_PERMILLE_MIN, bases * RISE_PERMILLE // 1_000), LINE_PERMILLE_MIN)
    line = np.repeat(lines, taken)
    cuts: Bools = runs & (stall_permille > line) & ~((idle >= span) & (mem_permille <= line))
    return cuts
