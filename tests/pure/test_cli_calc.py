"""``slacktide calc``: cases in, results out in order, with their arithmetic where it is asked for."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation, block, calculations
from slacktide.deploy.cli.main import cli
from slacktide.streams.decisions.because import Because
from testbed.snapshots import command_text, situations
from testbed.vectors import lines

QUOTA = {"be_allowed_cpu_milli": 900, "current_be_cfs_quota_us": -1, "node_capacity_cpu_milli": 8_000}


def line(name: str, **changed) -> str:
    return json.dumps({"name": name, "input": QUOTA | changed})


def calc(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, ["calc", *arguments], input=given)


LOAD = {"type": "load", "checkpoint": {"reference_seconds": 0, "total_weight": 1, "bucket_weights": {"three": 1}}}
HISTOGRAM = {"resource": "cpu", "half_life_seconds": 60, "events": [{"type": "restart"}, LOAD]}
ALLOWED = {
    "node_capacity_cpu_milli": 10_000,
    "node_allocatable_cpu_milli": 10_000,
    "node_cpu_usage_cores": 4.0,
    "pods": [{"qos_class": "LS", "kube_qos_class": "Burstable", "cpu_usage_cores": 3.0}],
    "threshold_percent": 80,
}


@situations(
    "given",
    {
        "each line is answered in order, and one that is wrong stops none": (
            ["cpu_suppress_cfs_quota"],
            [line("one"), "nonsense", "", line("three", be_allowed_cpu_milli="a"), line("four")],
        ),
        "a key that is wrong is named by its map's path": (
            ["peak_histogram"], [json.dumps({"name": "a", "input": HISTOGRAM})],
        ),
        "all computed is success": (["cpu_suppress_cfs_quota"], [line("one")]),
        "no lines are no failure": (["cpu_suppress_cfs_quota"], []),
        "explain adds the terms and the step that bound": (["cpu_suppress_cfs_quota", "--explain"], [line("one")]),
        "a table shows the arithmetic falling and ends with the output": (
            ["cpu_suppress_allowed", "--table"], [json.dumps({"name": "node-1", "input": ALLOWED})],
        ),
        "a table says what could not be computed": (
            ["cpu_suppress_cfs_quota", "--table"], [line("one", node_capacity_cpu_milli=-1)],
        ),
    },
)  # fmt: skip
def test_cases_are_answered(given: tuple[list[str], list[str]], snapshot) -> None:
    arguments, lines = given
    done = calc(*arguments, given="\n".join(lines))
    assert f"{command_text(done)}\nstderr: {done.stderr.rstrip()}" == snapshot


def test_the_list_names_every_calculation_and_another_name_is_wrong_usage() -> None:
    assert [said.split()[0] for said in calc("--list").stdout.splitlines()[1:]] == list(calculations())
    assert calc("nothing").exit_code == 2


@given(st.dictionaries(st.sampled_from(["a_milli", "b_milli", "c_bytes"]), st.integers(-(2**60), 2**60), min_size=1))
def test_any_sum_can_be_drawn(terms: dict) -> None:
    """Also one that falls below nothing, or starts from nothing."""
    drawn = block(Because(of="x", bound="formula", terms=terms, adds=tuple(f"-{name}" for name in terms)))

    assert len(drawn.splitlines()) == 1 + len(terms)


@pytest.mark.parametrize("name", calculations())
def test_a_figure_that_is_a_sum_is_the_sum_of_its_parts(name: str) -> None:
    """The terms shown are the computation: their parts lead to the figure before it is capped or floored."""
    for case in lines(name)[:40]:
        calculated = Calculation(name).answer(case).calculated
        assert calculated is not None
        for because in calculated.because:
            if because.adds:
                assert because.added() in because.terms.values() or because.bound in {"exhausted", "capped", "minimum"}
