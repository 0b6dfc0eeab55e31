"""The console's page of services: as profiles state it, in the words of the CLI, with the lines of a picture."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from slacktide.deploy.cli.explain.service_text import service_text
from slacktide.deploy.console.answers import NotKeptError, Question, answer
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.store import Store
from slacktide.schemas.codec import encode
from slacktide.schemas.topics import POLICY, SERVICE_PROFILE, SERVICE_SLOPE
from slacktide.streams.analysis.explain.service import colocation_in, explain_service
from slacktide.streams.records import Record
from testbed.console import HTML
from testbed.samples import START_MS
from testbed.services import INSENSITIVE, LEARNING, WEB, profile, services, slope
from testbed.snapshots import json_text

RECORDS = [
    one
    for one in services("on", [profile(), profile(f"shop/{HTML}", **LEARNING), profile("shop/calm", **INSENSITIVE)])
    if one.topic != SERVICE_SLOPE.name  # the console does not read it
]


def history(records: list[Record]) -> History:
    recorder = Recorder(START_MS // 1_000 - 60)
    for record in records:
        recorder.take(record)
    return History(Path("/nowhere"), lambda: recorder)


def page(question: str = "services", **given: str) -> Any:
    found = answer(history(RECORDS), question, Question(at_ms=START_MS, given=given))
    return msgspec.json.decode(msgspec.json.encode(found))


def test_the_page_lists_the_most_sensitive_first_and_a_filter_finds_by_name(snapshot) -> None:
    assert json_text(page()) == snapshot
    assert [one["service"] for one in page(filter="calm")["services"]] == ["shop/calm"]


def test_one_service_has_the_text_of_the_command_line_and_the_lines_of_its_picture() -> None:
    found = page(service=WEB)
    explained = explain_service(RECORDS, WEB, START_MS, colocation_in(RECORDS))
    assert explained is not None
    assert found["text"] == service_text(explained)
    assert page("explain", service=WEB, figure="slope")["lines"] == found["text"].split("\n")
    assert (found["cap_pct"], found["budget_pct"], found["mode"]) == (34, 25, "on")
    assert found["line"][0]["pct"] == 0
    assert found["line"][20] == found["half"]
    assert [one["from_pct"] for one in found["tenths"] if one["minutes"]] == [0, 10, 20, 30, 40, 50]


def test_without_records_the_page_is_empty() -> None:
    assert not answer(history([]), "services", Question(at_ms=START_MS, given={}))["services"]
    with pytest.raises(NotKeptError, match=r"no profile of service shop/none .* slacktide\.service\.profile\.v1"):
        page(service="shop/none")


def test_of_many_profiles_those_are_kept_that_change_the_status_or_what_nodes_use(tmp_path: Path) -> None:
    recorder, store = Recorder(START_MS // 1_000), Store(tmp_path / "history.db")
    policy = next(one for one in RECORDS if one.topic == POLICY.name)
    recorder.take(msgspec.structs.replace(policy, timestamp_ms=START_MS))
    for second in range(90):
        one = profile(node_hours=41.0 + second, published=slope(slope_permille=640 if second < 60 else 800))
        recorder.take(
            Record(topic=SERVICE_PROFILE.name, partition=0, offset=second, timestamp_ms=START_MS + 1_000 * second,
                   key=WEB.encode(), value=encode(one))
        )  # fmt: skip
    recorder.advance(START_MS + 120_000)
    for minute in recorder.minutes:
        store.add(minute)
    kept = [version for minute in recorder.minutes for version in minute.versions]
    recorder.minutes.clear()
    past = History(store.path, lambda: recorder)

    assert [one.at_ms - START_MS for one in kept] == [0, 60_000]
    caps = {
        after_s: answer(past, "services", Question(at_ms=START_MS + 1_000 * after_s, given={"service": WEB}))["cap_pct"]
        for after_s in (30, 70)
    }
    assert caps == {30: 34, 70: 27}
    store.close()
