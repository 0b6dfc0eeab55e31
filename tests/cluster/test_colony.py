"""The bench of a cluster (`--only cluster`) at a hundred nodes instead of a thousand: it holds, however fast it is."""

import pytest
from bench import thousand
from bench.rig import Rig
from bench.rows import Row

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.kafka, pytest.mark.timeout(600)]
NODES = 100


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    with Rig(virtual=True, nodes=NODES, each_s=2.0) as rig:
        return {row.figure.partition(",")[0].partition(" within")[0]: row for row in thousand.measure(rig)}


def test_every_node_shows_what_it_sells(rows: dict[str, Row]) -> None:
    assert rows["batch resource first written on all nodes"].n == str(NODES)


def test_a_load_step_shows_in_the_score_of_every_node_that_has_it(rows: dict[str, Row]) -> None:
    seen = rows["a load step in the scores"]
    assert seen.n == str(NODES // thousand.STEPPED_EACH), f"{seen.measured}; {_spent(rows)}"


def test_all_pods_are_placed_and_fewer_node_seconds_are_over_the_line_with_load_awareness(rows: dict[str, Row]) -> None:
    placed = rows["node-seconds over 65% of CPU"]
    assert placed.values["bound"] == {"with": 4 * NODES, "without": 4 * NODES}
    rates = rows["pods a second with the extender"].measured
    assert placed.verdict == "ok", f"{placed.measured}; pods a second: {rates}; {_spent(rows)}"


def test_the_api_server_is_a_mirror_and_no_bus(rows: dict[str, Row]) -> None:
    for kind in ("status", "metric"):
        assert rows[f"API writes: {kind}"].verdict == "ok", rows[f"API writes: {kind}"].measured


def test_what_each_process_costs_is_told(rows: dict[str, Row]) -> None:
    costs = rows["CPU (of a core) and memory of each process"].values["costs"]
    parts = {"Kafka", "kube-apiserver", "etcd", "stream", "bridge", "scheduler", "virtual agents"}
    assert parts <= costs.keys()
    assert all(mb > 1 for _, mb in costs.values())


def _spent(rows: dict[str, Row]) -> str:
    costs = rows["CPU (of a core) and memory of each process"]
    return f"{costs.measured}; warnings: {costs.values['warned'] or 'none'}"
