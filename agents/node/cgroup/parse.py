"""PURE: parses control files and /proc. Malformed text raises ValueError."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from slacktide.streams.decisions.cpu_list import cpu_list

Reader: TypeAlias = Callable[[bytes], int]
_SHOWN_CHARS = 40
_DIGITS_MAX = 18  # fits in a record; a counter takes years to reach it


def number(text: bytes) -> int:
    """Parse a file with one non-negative integer."""
    word = text[:-1]  # kernel files end with a newline
    return int(word) if word.isdigit() and text[-1:] == b"\n" and len(word) <= _DIGITS_MAX else _digits(text.strip())


def field(key: bytes) -> Callable[[bytes], int]:
    """Return a reader of one line of a ``key value`` file, such as ``cpu.stat``. An absent line raises ValueError."""
    needle = b"\n" + key + b" "
    head = key + b" "
    length = len(head)

    def read(text: bytes) -> int:
        before = 0 if text.startswith(head) else text.find(needle) + 1
        if not before and not text.startswith(head):
            raise ValueError(f"malformed: no line {key.decode()!r}")
        start = before + length
        end = text.find(b"\n", start)
        if end < 0:  # no newline: the number may be cut off
            raise ValueError(f"malformed: the line {key.decode()!r} does not end")
        return _digits(text[start:end].strip())

    return read


def optional_field(key: bytes) -> Callable[[bytes], int | None]:
    """Like ``field``, but the reader returns None if the line is absent."""
    needle = b"\n" + key + b" "
    read = field(key)

    def read_optional(text: bytes) -> int | None:
        return read(text) if needle in text or text.startswith(needle[1:]) else None

    return read_optional


def busy_ticks(text: bytes) -> int:
    """Parse all CPUs' busy time in /proc/stat: user with guest, nice, system, irq, softirq; not iowait, not steal."""
    user, nice, system, _, _, irq, softirq = (_digits(word) for word in _all_cpus(text))
    return user + nice + system + irq + softirq


def idle_ticks(text: bytes) -> int:
    """Parse all CPUs' idle time from /proc/stat, iowait included."""
    times = _all_cpus(text)
    return _digits(times[3]) + _digits(times[4])


def stall_us(text: bytes) -> int:
    """Parse the total stall time: ``total`` in the line ``some`` of a PSI file."""
    words = _first_line(text).split()
    if len(words) < 5 or words[0] != b"some" or not words[4].startswith(b"total="):
        raise ValueError(f"malformed: the first line is {_shown(text)}, not 'some' and its total")
    return _digits(words[4][6:])


_mem_total = field(b"MemTotal:")
_mem_available = field(b"MemAvailable:")


def used_bytes(text: bytes) -> int:
    """Parse the node's working set in bytes from /proc/meminfo, whose unit is kB: ``MemTotal - MemAvailable``."""
    plain = text.replace(b" kB\n", b"\n")
    return max(0, _mem_total(plain) - _mem_available(plain)) * 1024


def pressure_pct(kind: bytes) -> Callable[[bytes], float]:
    """Return a reader of ``avg10`` (percent) of ``some`` or ``full`` in a PSI file. Absent: raises ValueError."""

    def read(text: bytes) -> float:
        for line in text.splitlines():
            words = line.split()
            if words and words[0] == kind:
                if len(words) > 1 and words[1].startswith(b"avg10="):
                    return _percent(words[1][6:])
                raise ValueError(f"malformed: no avg10 in {_shown(line)}")
        raise ValueError(f"malformed: no line {kind.decode()!r}")

    return read


def quota_us(text: bytes) -> int | None:
    """Read ``cpu.cfs_quota_us``: a positive integer, or -1 (None: unlimited)."""
    word = text.strip()
    if word == b"-1":
        return None
    return _positive(word)


def period_us(text: bytes) -> int:
    """Read ``cpu.cfs_period_us``: a positive integer."""
    return _positive(text.strip())


def cpu_max(text: bytes) -> tuple[int | None, int]:
    """Read ``cpu.max``, such as ``max 100000``: quota (None: unlimited) and period in microseconds."""
    words = text.split()
    if len(words) != 2:
        raise ValueError(f"malformed: {_shown(text)} is not a quota and a period")
    return (None if words[0] == b"max" else _positive(words[0])), _positive(words[1])


def cpus(text: bytes) -> frozenset[int]:
    """Read a CPU list such as ``0-3,6``; empty text is the empty set."""
    found = cpu_list(text.decode(errors="replace").strip())
    if found is None:
        raise ValueError(f"malformed: {_shown(text)} is not a list of CPUs")
    return frozenset(found)


def _all_cpus(text: bytes) -> list[bytes]:
    words = _first_line(text).split()
    if len(words) < 8 or words[0] != b"cpu":
        raise ValueError(f"malformed: the first line is {_shown(text)}, not 'cpu' and its times")
    return words[1:8]


def _first_line(text: bytes) -> bytes:
    end = text.find(b"\n")
    if end < 0:  # no newline: the last number may be cut off
        raise ValueError(f"malformed: the first line, {_shown(text)}, does not end")
    return text[:end]


def _digits(word: bytes) -> int:
    if not word.isdigit() or len(word) > _DIGITS_MAX:
        raise ValueError(f"malformed: {_shown(word)} is not a number")
    return int(word)


def _positive(word: bytes) -> int:
    value = _digits(word)
    if not value:
        raise ValueError("malformed: 0 is not a positive number of microseconds")
    return value


def _percent(word: bytes) -> float:
    whole, _, part = word.partition(b".")
    if not (whole + part).isdigit() or float(word) > 100:
        raise ValueError(f"malformed: {_shown(word)} is not a number of percent")
    return float(word)


def _shown(text: bytes) -> str:
    shown = text[:_SHOWN_CHARS].decode(errors="replace")
    return repr(shown if len(text) <= _SHOWN_CHARS else shown + "…")
