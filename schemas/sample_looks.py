"""PURE: the gate and the looks of a sample as one list of numbers, and back."""

from collections.abc import Sequence

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.sample import PAUSE_MS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.schemas.sample_columns import GATE_NUMBERS, LOOK_NUMBERS

_GATE, _LOOK = PressureGate.__struct_fields__, PressureLook.__struct_fields__
_MOST = {"closed": 1, "pause_ms": PAUSE_MS_MAX, "wait_ms": PAUSE_MS_MAX}
"""Ranges of their own: the maximum."""


def looks_of(pressure: LsPressure) -> list[int]:
    """Return the numbers, see ``SampleColumns.looks``."""
    base, closed, *rest = msgspec.structs.astuple(pressure.gate)
    flat = [base, 1 if closed else 0, *rest]
    for look in pressure.looks:
        flat += msgspec.structs.astuple(look)
    return flat


def pressure_of(flat: Sequence[int]) -> LsPressure | None:
    """Return the gate and the looks; None: there are no numbers.

    Raises:
        BadMessageError: they are not those of a gate and of looks, or one is out of range.
    """
    if not flat:
        return None
    if len(flat) < GATE_NUMBERS or (len(flat) - GATE_NUMBERS) % LOOK_NUMBERS:
        accepted = f"{GATE_NUMBERS} of the gate, and {LOOK_NUMBERS} of each look"
        raise BadMessageError("NodeSample", f"`$.looks` has {len(flat)} numbers; accepted: {accepted}")
    gate = dict(zip(_GATE, flat, strict=False))
    for name, most in _MOST.items():
        if gate[name] > most:
            at = f"`$.looks[{_GATE.index(name)}]`, {name}"
            raise BadMessageError("NodeSample", f"Expected `int` in 0..{most} - at {at}: the value is {gate[name]}")
    looks = [
        PressureLook(**dict(zip(_LOOK, flat[at : at + LOOK_NUMBERS], strict=True)))
        for at in range(GATE_NUMBERS, len(flat), LOOK_NUMBERS)
    ]
    return LsPressure(gate=msgspec.convert(gate | {"closed": bool(gate["closed"])}, PressureGate), looks=looks)
