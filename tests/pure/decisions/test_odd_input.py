"""No input, however odd, makes a rule raise anything but our own error, told with the field's path."""

import copy
import json
from functools import cache
from random import Random

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation, calculations
from testbed.vectors import lines

CASES = 12
"""So many of a file's, from the smallest to above the middle: every field of a rule is there."""
calculation = cache(Calculation)

ODD = [
    None, True, False, "", "weird", "0-3,6", "30%", "0" * 70, -1, 0, 1, 99, 100, 101, 2**31, 2**53, 2**53 + 1,
    -(2**63), 2**63, 10**30, 1e-9, -0.5, 0.1, 1e15, 1e308, [], [None], [1, 1], {}, {"cpu": 1}, {"a": {"b": [{}]}},
]  # fmt: skip


@cache
def cases(name: str) -> list[str]:
    if name == "numa_batch_zones":
        zones = [{"id": zone, "allocatable": {"cpu_milli": 8}, "available": {"cpu_milli": zone}} for zone in (0, 3)]
        return [json.dumps({"name": "a", "input": {"batch_cpu_milli": 7, "batch_memory_bytes": 1, "zones": zones}})]
    if name == "job_status":
        rules = [
            {"action": "FailIndex", "operator": "In", "values": [42]},
            {"action": "Ignore", "pod_conditions": {"D": "True"}},
        ]
        spec = {"completions": 3, "indexed": True, "backoff_limit_per_index": 1, "failure_rules": rules}
        pod = {"uid": "u", "name": "a", "index": 1, "phase": "Failed", "tracked": True, "started_ms": 5, "cpu_milli": 9}
        pod |= {"exits": [{"name": "c", "exit_code": 42}]}
        success = {"success_rules": [{"indexes": "0-1,5", "count": 1}]}
        events = [{"pod": pod}, {"observed_ms": 9, "spec": spec | success, "counted": {"completed_indexes": "0,2"}}]
        return [json.dumps({"name": "a", "input": {"spec": spec, "events": events}})]
    files = {"free_resource": "batch_resource"}
    small = '"name":"own/'  # cases of single facts have few fields
    known = lines(files.get(name, name))
    by_size = sorted([line for line in known if small not in line] or known, key=len)
    return by_size[: len(by_size) * 3 // 4 : max(1, len(by_size) // CASES)]


def disturbed(line: str, random: Random) -> dict:
    """One to three places hold something else, nothing, or a copy of what stands elsewhere."""
    case = json.loads(line)
    for _ in range(random.randint(1, 3)):
        there = list(places(case["input"]))
        if not there:
            break
        parent, key = random.choice(there)
        change = random.choice(["odd", "odd", "remove", "copy", "repeat"])
        if change == "remove":
            del parent[key]
        elif change == "repeat" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            other, elsewhere = random.choice(there)
            parent[key] = copy.deepcopy(other[elsewhere] if change == "copy" else random.choice(ODD))
    return {name: case[name] for name in ("name", "input")}


def places(value):
    """Every place below: a map or list, and a key or index in it."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield value, key
        yield from places(child)


@pytest.mark.parametrize("name", calculations())
@given(random=st.randoms(use_true_random=True))
def test_a_case_with_odd_values_is_computed_or_told_what_is_wrong(name: str, random: Random) -> None:
    case = disturbed(random.choice(cases(name)), random)
    note(json.dumps(case))
    answered = calculation(name).answer(json.dumps(case))
    said = json.loads(answered.line)

    assert said["name"] == case["name"]
    assert (answered.calculated is None) == ("error" in said) == ("output" not in said)
    if "error" in said:
        assert said["error"].startswith("input"), said


@given(line=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_a_line_that_is_no_case_is_told_apart(line: bytes) -> None:
    said = json.loads(calculation("pod_requests").answer(line).line)

    assert "error" in said


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_nesting_without_end_is_refused(depth: int) -> None:
    line = '{"name": "deep", "input": {"containers": ' + "[" * depth + "]" * depth + "}}"

    assert "error" in json.loads(calculation("pod_requests").answer(line).line)
