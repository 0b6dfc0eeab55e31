"""``slacktide size``: the figures are those that are measured, the sum is right, and the page shows what is printed."""

import json
from pathlib import Path

import pytest
from bench.fleet import FleetNode
from bench.log import USUAL_POLICY
from bench.record_sizes import START_MS, batch, measured, sample_of
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.size import CODECS, interpolated, sized
from slacktide.deploy.cli.size import measured as figures
from slacktide.streams.kafka.fetched import walked

PAGE = Path(__file__).parents[2] / "docs/sizing.md"
TOLERANCE = 0.1
EVENTS = "slacktide.node.outcome.v1"
"""As many as limits change: bytes of one are compared, not how many."""


def test_records_have_the_bytes_that_were_measured() -> None:
    now = measured(30, seconds=60)
    then = figures().records_by_pods[30]

    assert now.keys() == then.keys()
    for topic, found in now.items():
        for what in (*CODECS, *(() if topic == EVENTS else ("records_per_s",))):
            assert found[what] == pytest.approx(then[topic][what], rel=TOLERANCE), (topic, what)


def test_a_thousand_nodes() -> None:
    size = sized(1_000, 30, figures())
    sample = next(one for one in size.topics if one.topic == "slacktide.node.sample.v2")

    each = figures().records_by_pods[30]["slacktide.node.sample.v2"]["none"]
    assert sample.bytes_per_day["none"] == pytest.approx(1_000 * 86_400 * each, rel=1e-9)
    assert sample.disk_bytes["none"] == pytest.approx(2 * 3 * sample.bytes_per_day["none"], rel=1e-9), (
        "48 h, 3 replicas"
    )
    assert (size.partitions, size.workers) == (12, 2)
    assert 211e6 <= size.worker_mem_bytes <= 250e6, "docs/benchmarks.md has 211 MB"


@given(st.integers(1, 20_000), st.integers(1, 500))
def test_more_nodes_or_pods_never_need_less(nodes: int, pods: int) -> None:
    size = sized(nodes, pods, figures())

    for larger in (sized(2 * nodes, pods, figures()), sized(nodes, pods + 200, figures())):
        assert larger.workers >= size.workers
        assert larger.partitions >= size.partitions
    twice = sized(2 * nodes, pods, figures())
    assert twice.bytes_per_day["zstd"] == pytest.approx(2 * size.bytes_per_day["zstd"], rel=0.01)
    assert size.disk_bytes["none"] >= size.disk_bytes["zstd"]


def test_between_two_points_and_beyond_them_there_are_lines() -> None:
    points = {10: 100.0, 30: 300.0, 100: 1_000.0}
    assert [interpolated(points, at) for at in (10, 20, 100, 200)] == [100, 200, 1_000, 2_000]


def test_json_has_all_codecs_and_bad_input_is_refused() -> None:
    done = CliRunner().invoke(cli, ["size", "--nodes", "5", "-o", "json"])

    assert json.loads(done.output)["bytes_per_day"].keys() == set(CODECS)
    assert CliRunner().invoke(cli, ["size", "--nodes", "0"]).exit_code == 2


def test_the_page_shows_what_is_printed() -> None:
    block = PAGE.read_text().split("    $ slacktide size --nodes 1000 --pods 30\n")[1]
    shown = [line[4:] for line in block.split("\n\n## ")[0].splitlines()]

    done = CliRunner().invoke(cli, ["size", "--nodes", "1000", "--pods", "30"])
    assert "\n".join(shown).strip() == done.output.strip()


@pytest.mark.parametrize(("codec", "plain"), [(0, 1), (1, 0), (2, 0), (3, 0), (4, 0)])
def test_a_compressed_batch_leaves_the_fast_path_and_is_read_all_the_same(codec: int, plain: int) -> None:
    sample = sample_of(FleetNode(1, USUAL_POLICY), START_MS)
    fetched = walked(batch([sample], codec), 0, 1 << 20)

    assert (len(fetched.plain), len(fetched)) == (plain, 1)
    assert plain or fetched.others[0][1][0].value == sample.value
