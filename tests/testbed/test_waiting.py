"""Whoever waits in vain is told why."""

from pathlib import Path

import pytest

from testbed.parts import running_part
from testbed.waiting import soon


async def nothing() -> str:
    return ""


async def test_a_wait_ends_with_its_time_and_shows_what_was_seen() -> None:
    async def skipped() -> list[str]:
        return ["skipped"]

    with pytest.raises(AssertionError, match=r"not within 0\.2 s: an answer: last seen: \['skipped'\]"):
        await soon(skipped, "an answer", 0.2, enough=lambda seen: "set" in seen)


async def test_a_wait_ends_with_the_part_it_depends_on_and_shows_its_log(tmp_path: Path) -> None:
    wrong = running_part(tmp_path, "stream", "--colour", "blue")
    told = pytest.raises(AssertionError, match=r"(?s)stream ended:.*No such option.*--colour")
    with wrong as part, told:
        await soon(nothing, "an answer", part=part)
