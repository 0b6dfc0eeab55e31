"""``slacktide calc``: cases in, results out in order, with their arithmetic where it is asked for."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation, block, calculations
from slacktide.deploy.cli.main import cli
from slacktide.streams.decisions.because import Because
from testbed.snapshots import command_text
from testbed.vectors import each_row, lines

QUOTA = {"be_allowed_cpu_milli": 900, "current_be_cfs_quota_us": -1, "node_capacity_cpu_milli": 8_000}


def line(case: dict[str, Any]) -> str:
    """A case as a line, of which the input is that of a quota with these changes if it has none of its own."""
    return json.dumps({"name": case["name"], "input": case.get("input") or QUOTA | case.get("changes", {})})


def calc(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, ["calc", *arguments], input=given)


@each_row("arguments", "lines")
def test_cases_are_answered(arguments: list[str], lines: list[dict[str, Any] | str], snapshot) -> None:
    texts = [one if isinstance(one, str) else line(one) for one in lines]
    done = calc(*arguments, given="\n".join(texts))
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
