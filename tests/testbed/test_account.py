"""What makes a run of the tests fail although each test passed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CONFTEST = """
from dataclasses import replace
from pathlib import Path
from testbed import rungs
from testbed.account import Account

rungs.TESTBED = Path(__file__).parent / "testbed"
rungs.LADDER = (rungs.PURE, replace(rungs.PURE, name="costly", marker="costly", here=False))

def pytest_addoption(parser):
    parser.addoption("--ladder", default="all")

def pytest_configure(config):
    config.pluginmanager.register(Account(config))
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], pytest.ExitCode.TESTS_FAILED), (["--ladder=here"], pytest.ExitCode.OK)],
    ids=["lost", "not asked for"],
)
def test_a_rung_without_a_test_fails_the_run_that_asks_for_it(
    tmp_path: Path, arguments: list[str], code: pytest.ExitCode
) -> None:
    (tmp_path / "tests/pure").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "tests/pure/test_one.py").write_text("def test_passes():\n    pass\n")
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "SLACKTIDE_REQUIRE_ALL": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == code, ran.stdout
    assert ("costly: failed: no test ran" in ran.stdout) == (code != pytest.ExitCode.OK)
    assert "1 passed" in ran.stdout
