"""The plain reference: each answer from scratch, out of all samples of one node. Slow and obvious; pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.peers.answer import WINDOW_S, answer
from slacktide.schemas.sample import NodeSample

WINDOW_MS = WINDOW_S * 1000
RELATIVE = 1e-9
"""Sums that run along round elsewhere than sums from scratch."""

Begin = Callable[[int], int]
"""From a sample's time to that of the oldest one in its window."""


def sliding(observed_ms: int) -> int:
    """The last minute."""
    return observed_ms - WINDOW_MS + 1


def tumbling(observed_ms: int) -> int:
    """The minute of the clock."""
    return observed_ms - observed_ms % WINDOW_MS


def answers(samples: Sequence[NodeSample], begin: Begin) -> Iterator[dict[str, Any]]:
    """One each sample of a node, which come in order."""
    for number, sample in enumerate(samples):
        window = [one for one in samples[: number + 1] if one.observed_ms >= begin(sample.observed_ms)]
        pods = []
        for pod in sample.pod_use:
            seen = [use for one in window for use in one.pod_use if use.uid == pod.uid]
            cpu_milli = sum(use.cpu_milli or 0 for use in seen) / len(seen)
            mem_bytes = sum(use.mem_bytes or 0 for use in seen) / len(seen)
            pods.append((pod.uid, cpu_milli, mem_bytes, pod.best_effort_group))
        yield answer(
            sample.node,
            sample.observed_ms,
            [one.use.cpu_milli or 0 for one in window],
            [one.use.mem_bytes or 0 for one in window],
            pods,
            (
                (sample.use.cpu_milli or 0) - sum(pod.cpu_milli or 0 for pod in sample.pod_use),
                (sample.use.mem_bytes or 0) - sum(pod.mem_bytes or 0 for pod in sample.pod_use),
            ),
        )


def difference(got: Any, wanted: Any, place: str = "answer") -> str:
    """Where two answers differ by more than rounding; "": nowhere."""
    if isinstance(wanted, dict):
        if not isinstance(got, dict) or got.keys() != wanted.keys():
            return f"{place}: {got!r} has other fields than {wanted!r}"
        return next((text for key in wanted if (text := difference(got[key], wanted[key], f"{place}.{key}"))), "")
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return f"{place}: {got!r} is no list of {len(wanted)}"
        places = (f"{place}[{number}]" for number in range(len(wanted)))
        return next((text for text in map(difference, got, wanted, places) if text), "")
    if isinstance(wanted, int | float) and isinstance(got, int | float):
        return "" if math.isclose(got, wanted, rel_tol=RELATIVE, abs_tol=1e-3) else f"{place}: {got}, not {wanted}"
    return "" if got == wanted else f"{place}: {got!r}, not {wanted!r}"
