"""The simulation against the real Kueue 0.19.2: what it made of small worlds (`tests/replay/make_kueue.py`)."""

import gzip
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from testbed.kueue_worlds import Answers, difference, world

RECORDED = Path(__file__).parents[1] / "replay/kueue.jsonl.gz"


@pytest.fixture(scope="module")
def recorded() -> list[Answers]:
    return msgspec.json.Decoder(Answers).decode_lines(gzip.decompress(RECORDED.read_bytes()))


def test_what_runs_and_what_was_evicted_is_in_each_world_as_on_kueue(recorded: list[Answers]) -> None:
    assert {one.seed: how for one in recorded if (how := difference(one))} == {}


def test_the_recorded_worlds_have_all_that_they_are_to_compare(recorded: list[Answers]) -> None:
    assert len(recorded) >= 300
    assert sum(one.fair for one in recorded) >= 60
    reasons = Counter(why for one in recorded for step in one.steps for _, _, why in step.evicted)
    assert reasons.keys() == {
        "InClusterQueue", "InCohortReclamation", "InCohortReclaimWhileBorrowing", "InCohortFairSharing"
    }  # fmt: skip
    assert min(reasons.values()) >= 5
    assert sum(bool(step.finished) for one in recorded for step in one.steps) >= 100
    of = [world(one.seed).objects for one in recorded]
    flavors = Counter(sum(each["kind"] == "ResourceFlavor" for each in objects) for objects in of)
    strategies = Counter(each["spec"].get("queueingStrategy") for objects in of for each in objects)
    assert min(flavors[1], flavors[2], strategies["StrictFIFO"], strategies["BestEffortFIFO"]) >= 50
