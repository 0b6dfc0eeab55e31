"""What an operator may ask of a trigger, by its text."""

import pytest
from click.testing import CliRunner

from slacktide.agents.node.pressure import Stall
from slacktide.deploy.cli.main import cli
from testbed.vectors import each_row


@each_row("text", "stall")
def test_what_a_kernel_takes_is_taken_and_says_the_same_again(text: str, stall: Stall | None) -> None:
    assert Stall.parse(text) == stall
    assert Stall.parse(str(stall or "off")) == stall


@pytest.mark.parametrize("text", ["", "50", "0/500", "501/500", "50/499", "50/10001", "5e1/500", "-1/500"])
def test_what_no_kernel_takes_is_refused_with_what_it_would(text: str) -> None:
    refused = CliRunner().invoke(cli, ["agent", "--pressure-trigger", text])

    assert refused.exit_code == 2
    assert "STALL/WINDOW" in refused.output or "500 to 10000 ms" in refused.output
