"""What mid pods may ask for is shown term by term, with the step that bound it."""

from pathlib import Path

from click.testing import CliRunner

from slacktide.deploy.cli.main import cli

CASES = (Path(__file__).parents[1] / "vectors/mid_resource.jsonl").read_text().splitlines()
CASE = next(line for line in CASES if '"name":"edge/unallocated_100"' in line)
TERMS = ("reclaimable_milli", "unused_milli", "base_milli", "unallocated_milli", "unallocated_pct", "cap_milli")


def test_each_term_of_mid_cpu_is_named_with_its_value() -> None:
    done = CliRunner().invoke(cli, ["calc", "mid_resource", "--table"], input=CASE)
    terms = dict(line.split()[-2:] for line in done.output.splitlines() if "_milli  " in line and "█" not in line)

    assert done.exit_code == 0
    assert "mid_cpu_milli: formula" in done.output
    for name in TERMS:
        assert name in done.output
    assert terms["reclaimable_milli"] == "12,000"
