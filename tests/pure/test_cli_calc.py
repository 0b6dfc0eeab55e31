"""``slacktide calc``: cases in, results out in order, with their arithmetic where it is asked for."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import CALCULATIONS, Calculation
from slacktide.deploy.cli.calc.waterfall import block
from slacktide.deploy.cli.main import cli
from slacktide.streams.decisions.because import Because
from testbed.vectors import lines

QUOTA = {"be_allowed_cpu_milli": 900, "current_be_cfs_quota_us": -1, "node_capacity_cpu_milli": 8_000}


def line(name: str, **changed) -> str:
    return json.dumps({"name": name, "input": QUOTA | changed})


def calc(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, ["calc", *arguments], input=given)


def test_each_line_is_answered_in_order_and_one_that_is_wrong_stops_none() -> None:
    lines = [line("one"), "nonsense", "", line("three", be_allowed_cpu_milli="a"), line("four")]
    done = calc("cpu_suppress_cfs_quota", given="\n".join(lines))

    assert [json.loads(said) for said in done.stdout.splitlines()] == [
        {"name": "one", "output": {"be_cfs_quota_us": 90_000}},
        {"name": None, "error": "JSON is malformed: invalid character (byte 4)"},
        {"name": "three", "error": "input.be_allowed_cpu_milli: Expected `int`, got `str`"},
        {"name": "four", "output": {"be_cfs_quota_us": 90_000}},
    ]
    assert done.exit_code == 1
    assert done.stderr == "2 of 4 cases could not be computed; their lines contain the error\n"


def test_a_key_that_is_wrong_is_named_by_its_maps_path() -> None:
    checkpoint = {"reference_seconds": 0, "total_weight": 1, "bucket_weights": {"three": 1}}
    load = {"type": "load", "checkpoint": checkpoint}
    given = {"resource": "cpu", "half_life_seconds": 60, "events": [{"type": "restart"}, load]}
    done = calc("peak_histogram", given=json.dumps({"name": "a", "input": given}))

    error = json.loads(done.stdout)["error"]
    assert error == "input.events[1].checkpoint.bucket_weights: key: Expected `int`, got `str`"


def test_all_computed_is_success_and_no_lines_are_no_failure() -> None:
    assert calc("cpu_suppress_cfs_quota", given=line("one")).exit_code == 0
    assert calc("cpu_suppress_cfs_quota").exit_code == 0


def test_explain_adds_the_terms_and_the_step_that_bound() -> None:
    done = calc("cpu_suppress_cfs_quota", "--explain", given=line("one"))

    assert json.loads(done.stdout) == {
        "name": "one",
        "output": {"be_cfs_quota_us": 90_000},
        "because": [
            {
                "of": "be_cfs_quota_us",
                "bound": "target",
                "terms": {"allowed_milli": 900, "target_us": 90_000},
                "adds": [],
            }
        ],
    }


def test_the_list_names_every_calculation_and_another_name_is_wrong_usage() -> None:
    assert [said.split()[0] for said in calc("--list").stdout.splitlines()[1:]] == list(CALCULATIONS)
    assert calc("nothing").exit_code == 2


def test_a_table_shows_the_arithmetic_falling_and_ends_with_the_output() -> None:
    case = {
        "name": "node-1",
        "input": {
            "node_capacity_cpu_milli": 10_000,
            "node_allocatable_cpu_milli": 10_000,
            "node_cpu_usage_cores": 4.0,
            "pods": [{"qos_class": "LS", "kube_qos_class": "Burstable", "cpu_usage_cores": 3.0}],
            "threshold_percent": 80,
        },
    }

    assert calc("cpu_suppress_allowed", "--table", given=json.dumps(case)).stdout.splitlines() == [
        "node-1",
        "  be_allowed_cpu_milli: formula",
        "      capacity_milli                     10,000",
        "      threshold_pct                          80",
        "    + ceiling_milli                       8,000  ████████████████████████████████████████",
        "    - nonbe_pods_milli                    3,000                           ░░░░░░░░░░░░░░░",
        "    - nonbe_hosts_milli                       0",
        "    - system_milli                        1,000                      ░░░░░",
        "      formula_milli                       4,000  ████████████████████",
        "  = be_allowed_cpu_milli: 4000",
        "",
    ]  # fmt: skip


def test_a_table_says_what_could_not_be_computed() -> None:
    done = calc("cpu_suppress_cfs_quota", "--table", given=line("one", node_capacity_cpu_milli=-1))

    assert "input.node_capacity_cpu_milli" in done.stdout
    assert done.exit_code == 1


@given(st.dictionaries(st.sampled_from(["a_milli", "b_milli", "c_bytes"]), st.integers(-(2**60), 2**60), min_size=1))
def test_any_sum_can_be_drawn(terms: dict) -> None:
    """Also one that falls below nothing, or starts from nothing."""
    drawn = block(Because(of="x", bound="formula", terms=terms, adds=tuple(f"-{name}" for name in terms)))

    assert len(drawn.splitlines()) == 1 + len(terms)


@pytest.mark.parametrize("name", CALCULATIONS)
def test_a_figure_that_is_a_sum_is_the_sum_of_its_parts(name: str) -> None:
    """The terms shown are the computation: their parts lead to the figure before it is capped or floored."""
    for case in lines(name)[:40]:
        calculated = Calculation(name).answer(case).calculated
        assert calculated is not None
        for because in calculated.because:
            if because.adds:
                assert because.added() in because.terms.values() or because.bound in {"exhausted", "capped", "minimum"}
