"""Each knob that a message can name has one row, and whoever reads the table knows the knob by it."""

from pathlib import PurePosixPath
from typing import get_args

import pytest

from slacktide.agents.node.cgroup.group_knobs import FILES, Place, as_reads_back, refusal
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, BURSTABLE
from slacktide.deploy.virtual.files import CONTROL, v1_texts, v2_texts, write
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob_table import CONTROLS, KNOBS, Knob
from testbed.virtual import knobs

POD = Pod(uid="u", namespace="default", name="batch", kube_qos="BestEffort")
PLACES = {
    "best-effort tier": Place(tier=BEST_EFFORT, base=PurePosixPath("besteffort"), inside=PurePosixPath()),
    "other tier": Place(tier=BURSTABLE, base=PurePosixPath("burstable"), inside=PurePosixPath()),
    "best-effort pod": Place(tier=BEST_EFFORT, base=PurePosixPath("b/podu"), inside=PurePosixPath(), pod=POD),
    "other pod": Place(tier=BURSTABLE, base=PurePosixPath("a/podu"), inside=PurePosixPath(), pod=POD),
}
EACH_KNOB = pytest.mark.parametrize("knob", KNOBS)


def test_each_knob_has_a_row() -> None:
    assert set(KNOBS) == set(get_args(Knob))
    assert len({row.name for row in CONTROLS}) == len(CONTROLS)


@EACH_KNOB
def test_a_knob_is_written_in_the_groups_of_its_row_alone(knob: Knob) -> None:
    never = {
        kind for kind, place in PLACES.items() if refusal(place, knob, KNOBS[knob].low).endswith("is never written")
    }

    assert never == PLACES.keys() - KNOBS[knob].groups


@EACH_KNOB
@pytest.mark.parametrize("value", ["low", "high"])
def test_a_best_effort_group_takes_the_range_of_the_row_and_no_more(knob: Knob, value: str) -> None:
    row = KNOBS[knob]
    edge, beyond = (row.low, row.low - 1) if value == "low" else (row.high, row.high + 1)

    for kind in row.groups - {"other pod"}:
        assert refusal(PLACES[kind], knob, edge) == ""
        assert refusal(PLACES[kind], knob, beyond) == f"{knob} {beyond}: accepted: {row.low} to {row.high}"


@EACH_KNOB
@pytest.mark.parametrize("version", [1, 2])
def test_the_model_holds_each_knob_that_its_version_has(knob: Knob, version: int) -> None:
    machine = Machine(cpus=4, mem_bytes=1 << 30, version=version)
    group = machine.add_pod("u", "BestEffort")
    shown = v2_texts(group, frozenset({0})) if version == 2 else {}
    for files in v1_texts(group, frozenset({0})).values() if version == 1 else ():
        shown |= files

    assert set(KNOBS[knob].files(version)) <= shown.keys() & set(CONTROL[version])
    if knob in FILES[version]:
        write(machine, group.path, knob, KNOBS[knob].low)
        assert knobs.read(machine, group.path, knob) == as_reads_back(knob, KNOBS[knob].low, version)
