"""Completion indexes in the format of a Job's status: ``0,1,3-9``.

Reading: Kubernetes v1.34.4, pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from slacktide.schemas.job_pod import INDEXES_MAX


def index_text(indexes: Iterable[int]) -> str:
    """Format indexes. Two consecutive indexes are joined by a comma, three or more by a dash."""
    parts: list[str] = []
    first = last = -2
    for index in (*sorted(indexes), -2):
        if index == last + 1:
            last = index
            continue
        if first >= 0:
            parts.append(str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}")
        first = last = index
    return ",".join(parts)


def indexes_of(text: str, completions: int | None) -> set[int]:
    """Parse the indexes below ``completions``, at most 100,000. Ignore invalid ranges."""
    below = INDEXES_MAX if completions is None else completions
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not _is_index(first) or (dash and not _is_index(last)):
            continue
        begin, end = int(first), min(int(last) if dash else int(first), below - 1)
        found.update(range(begin, min(end, begin + INDEXES_MAX - len(found) - 1) + 1))
    return found


def _is_index(text: str) -> bool:
    return len(text) <= 10 and text.isascii() and text.isdecimal()
