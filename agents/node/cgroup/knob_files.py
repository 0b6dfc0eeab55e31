"""PURE: each knob in the words of cgroup v1 and v2, and back. Bandwidth has two files on v1: see ``group_knobs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.plan import CPU_MAX_FILE, QUOTA_FILE
from slacktide.schemas.sample import Knob
from slacktide.streams.decisions.be_isolation import SHARES_MAX, SHARES_MIN

PAGE_BYTES = 4_096
_NO_LIMIT_BYTES = 1 << 62
"""What cgroup v1 says where no limit was written is some pages below 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFile:
    """One control file that holds one figure."""

    controller: Literal["cpu", "memory"]
    name: str
    read: Callable[[bytes], int | None]
    """Raises ValueError where the text is something else."""
    text: Callable[[int | None], str]


def weight_of(shares: int) -> int:
    """The v2 weight of v1 shares, as the kubelet converts."""
    return 1 + (min(max(shares, SHARES_MIN), SHARES_MAX) - SHARES_MIN) * 9_999 // 262_142


def shares_of(weight: int) -> int:
    """The v1 shares of a v2 weight, as the kubelet converts back; an idle group's weight is 0."""
    return SHARES_MIN + max(0, weight - 1) * 262_142 // 9_999


def as_told(knob: Knob, value: int | None, version: int) -> int | None:
    """What a kernel tells once this was written: weights are coarser on v2, memory comes in pages."""
    if value is None:
        return None
    if knob == "cpu_shares":
        return min(max(value, SHARES_MIN), SHARES_MAX) if version == 1 else shares_of(weight_of(value))
    return value // PAGE_BYTES * PAGE_BYTES if knob.startswith("mem_") else value


def _limit_v1(text: bytes) -> int | None:
    word = text.strip()
    if word == b"-1":  # a plain file, a virtual node's, keeps what was written
        return None
    if not word.isdigit() or len(word) > len(str(_NO_LIMIT_BYTES)):
        raise ValueError(f"malformed: {word[:40]!r} is not a number of bytes")
    return None if int(word) >= _NO_LIMIT_BYTES else int(word)


def _limit_v2(text: bytes) -> int | None:
    return None if text.strip() == b"max" else parse.number(text)


def _bytes_v2(controller_file: str) -> KnobFile:
    return KnobFile(
        controller="memory",
        name=controller_file,
        read=_limit_v2,
        text=lambda value: "max" if value is None else str(value),
    )


def _cpu(name: str, read: Callable[[bytes], int] = parse.number, text: Callable[[int | None], str] = str) -> KnobFile:
    return KnobFile(controller="cpu", name=name, read=read, text=text)


FILES: Mapping[int, Mapping[Knob, KnobFile]] = {
    1: {
        "cpu_shares": _cpu("cpu.shares"),
        "cfs_burst_us": _cpu("cpu.cfs_burst_us"),
        "cpu_idle": _cpu("cpu.idle"),
        "mem_limit_bytes": KnobFile(
            controller="memory",
            name="memory.limit_in_bytes",
            read=_limit_v1,
            text=lambda value: "-1" if value is None else str(value),
        ),
    },
    2: {
        "cpu_shares": _cpu(
            "cpu.weight", lambda text: shares_of(parse.number(text)), lambda value: str(weight_of(value or 0))
        ),
        "cfs_burst_us": _cpu("cpu.max.burst"),
        "cpu_idle": _cpu("cpu.idle"),
        "mem_limit_bytes": _bytes_v2("memory.max"),
        "mem_min_bytes": _bytes_v2("memory.min"),
        "mem_low_bytes": _bytes_v2("memory.low"),
        "mem_high_bytes": _bytes_v2("memory.high"),
    },
}
"""By the version of cgroups; what is not here that version has not, but for ``cfs_quota_us``."""
QUOTA_FILES = {1: QUOTA_FILE, 2: CPU_MAX_FILE}
