"""Slacktide's rules against the real koord-manager 1.8.0: what it made of pods and NodeMetrics.

`tests/replay/make_koordinator.py` recorded it.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from slacktide.deploy.cli.calc.calculations import Calculation
from testbed.koordinator_nodes import Json
from testbed.koordinator_pods import DIFFERENCES, Recorded, difference, ours

REPLAY = Path(__file__).parents[1] / "replay"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return msgspec.json.decode(gzip.decompress((REPLAY / "koordinator_pods.json.gz").read_bytes()), type=Recorded)


@pytest.fixture(scope="module")
def loads() -> list[Json]:
    lines = gzip.decompress((REPLAY / "koordinator_nodes.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


def test_each_pod_comes_out_as_from_koordinators_webhook_but_for_the_listed_differences(recorded: Recorded) -> None:
    found = Counter[str]()
    unlisted = {}
    for one in recorded.asked:
        answer = ours(recorded.worlds[one.world], one.namespace, one.pod)
        if (how := difference(one.pod, one.answer, answer)) in DIFFERENCES:
            found[how] += 1
        elif how:
            unlisted[one.pod["metadata"]["name"]] = how
    assert unlisted == {}
    assert found.keys() == DIFFERENCES.keys()


def test_the_recorded_pods_have_all_that_they_are_to_compare(recorded: Recorded) -> None:
    assert len(recorded.asked) == 500
    refused = sum(bool(one.answer.refused) for one in recorded.asked)
    changed = sum(not one.answer.refused and one.answer.pod["spec"] != one.pod["spec"] for one in recorded.asked)
    assert min(refused, changed) >= 100


def test_batch_resources_are_those_that_koord_manager_wrote_of_the_same_node_metric(loads: list[Json]) -> None:
    calculation = Calculation("batch_resource")
    differ = {}
    for case in loads:
        answer = json.loads(calculation.answer(json.dumps(case)).line)
        if answer.get("output") != case["expected"]:
            differ[case["name"]] = answer, case["expected"]
    assert differ == {}
    assert len(loads) == 500
