"""Checks the processors of CPU suppression cases."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import Processor


def distinct(processors: Sequence[Processor]) -> Sequence[Processor]:
    """Return the processors unchanged.

    Raises:
        CaseError: a CPU occurs twice.
    """
    seen: set[int] = set()
    for at, processor in enumerate(processors):
        if processor.cpu in seen:
            raise CaseError(f"input.processors[{at}].cpu", f"CPU {processor.cpu} is given twice")
        seen.add(processor.cpu)
    return processors
