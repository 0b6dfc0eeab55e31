"""How far a long reading is, as a terminal shows it."""

import io
from pathlib import Path

import pytest

from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.replay.source import EVERY_RECORDS, Progress
from slacktide.deploy.runtime import progress
from slacktide.deploy.runtime.progress import left_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_begins_at_0_where_all_that_is_kept_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export without --since begins in 1970, its first record does not."""
    shown = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", shown)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    first_ms = 1_800_000_000_000
    bar = Progress("replay", 0, first_ms + 4 * EVERY_RECORDS)
    for number in range(4 * EVERY_RECORDS):
        bar.read(first_ms + number)

    assert [part for part in ("25%", "50%", "75%", "100%") if part in shown.getvalue()] == ["25%", "50%", "75%", "100%"]


def test_where_nobody_looks_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(progress.sys, "stderr", written)
    bar = Progress("replay", 0, 10)
    for number in range(EVERY_RECORDS):
        bar.read(number)
    bar.done()

    assert not written.getvalue()


def test_a_simulated_queue_shows_the_time_that_it_has_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", shown)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    example = Path(__file__).parents[2] / "docs/queue-example.yaml"
    cli.main(["queue", "simulate", str(example)], standalone_mode=False)

    parts = [text.partition("]")[2].split("%")[0].strip() for text in shown.getvalue().split("\r") if "%" in text]
    assert len(parts) > 1
    assert parts == sorted(parts, key=int)
    assert "events, at" in shown.getvalue()


@pytest.mark.parametrize(
    ("part", "elapsed_s", "text"),
    [(0.01, 10, ""), (0.5, 30, ", 30 s left"), (0.25, 100, ", 5 min left"), (1.0, 7, ", 0 s left")],
)
def test_what_is_left_follows_from_the_time_so_far(part: float, elapsed_s: float, text: str) -> None:
    assert left_text(part, elapsed_s) == text
