"""``slacktide calc cpu_pressure``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given
from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.suppress.cpu_pressure import fold


class Input(Given, frozen=True, kw_only=True):
    """The gate of a sample, the measurements since, and the node."""

    node_capacity_cpu_milli: Amount
    gate: PressureGate = PressureGate()
    looks: Annotated[list[PressureLook], msgspec.Meta(max_length=LOOKS_MAX)]


def calculate(given: Input) -> Calculated:
    """Compute the gate after the newest measurement."""
    step = fold(LsPressure(gate=given.gate, looks=given.looks), given.node_capacity_cpu_milli)
    return Calculated(
        output={"gate": msgspec.structs.asdict(step.gate)},
        because=[Because(of="gate", bound=step.bound, terms=step.terms)],
    )
