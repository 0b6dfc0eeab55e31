"""CI may not lose a rung: a skip that a set-up could have avoided is a failure there, and only there."""

import functools
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOWHERE = {"XDG_CACHE_HOME": "/nowhere", "KUBEBUILDER_ASSETS": "", "SLACKTIDE_BUILDING": ""}
"""Nothing was fetched or built."""


@functools.cache
def run(file: str, *, require_all: bool, **environment: str) -> tuple[int, str]:
    """Run one file in a pytest of its own."""
    given = os.environ | {"SLACKTIDE_REQUIRE_ALL": "1" if require_all else "", "COLUMNS": "200"} | environment
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / file)]
    done = subprocess.run(command, cwd=HERE.parents[1], env=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_elsewhere_a_rung_that_lacks_its_part_is_skipped_by_name() -> None:
    code, said = run("skips_itself.py", require_all=False)

    assert code == 0
    assert "1 passed, 2 skipped, 1 xfailed" in said.splitlines()[-1]


def test_in_ci_a_skip_that_could_have_been_avoided_fails() -> None:
    code, said = run("skips_itself.py", require_all=True)

    assert code == 1
    assert "test_that_could_run - skipped although this machine can run it: Skipped: a part is missing" in said
    assert "this machine cannot: there is no such kernel" in said
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in said.splitlines()[-1]


def test_in_ci_a_file_that_skips_itself_whole_fails() -> None:
    code, said = run("skips_itself_whole.py", require_all=True)

    assert code != 0
    assert "skipped although this machine can run it" in said


def test_each_rung_is_accounted_for() -> None:
    _, said = run("skips_itself.py", require_all=False)
    account = said[said.index("rungs") :]

    assert "pure                         1 passed, 2 skipped" in account


def test_where_kubernetes_can_neither_be_found_nor_built_its_rung_is_left_out_and_says_so(tmp_path: Path) -> None:
    code, said = run("../cluster/test_test_bed.py", require_all=True, **NOWHERE | {"PATH": str(tmp_path)})

    assert code == 0
    assert "passed" not in said.splitlines()[-1]
    assert "for want of etcd, kube-apiserver, kubectl, " in said
    assert "helm; to get it: install Go" in said


def test_what_a_few_tests_need_beside_their_rung_is_named_with_the_command_that_brings_it(tmp_path: Path) -> None:
    """Where metrics-server was not built, the one test that compares with it ended with an error."""
    code, said = run("lacks_beside.py", require_all=False, **NOWHERE | {"PATH": str(tmp_path)})
    account = said[said.index("rungs") :]

    assert code == 0
    assert "pure                         1 passed, 3 skipped" in account
    assert "left out: pure: 1 tests for want of kueue; to get it: install Go" in account
    assert "&& tests/testbed/setup kueue" in account
    assert "left out: pure: 1 tests for want of metrics-server; to get it: install Go" in account
    assert "&& tests/testbed/setup metrics-server" in account
    assert (
        "left out: pure: 1 tests for want of kcat; to get it: apt-get install --no-install-recommends kcat" in account
    )


def test_a_test_without_the_mark_of_what_it_reaches_fails_whether_it_is_there_or_not() -> None:
    """Where Kafka's jars were lacking, six tests ended with an error of Java's instead of being left out."""
    code, said = run("reaches_unmarked.py", require_all=False, **NOWHERE)

    assert code == 1
    assert "it reaches KafkaBroker and must carry the mark kafka or attack or stack" in said
    assert "it reaches GuardedKafka and must carry the mark kafka or attack or stack" in said
    assert "it reaches RealNode and must carry the mark realnode" in said
    assert "it reaches MetricsServer and must carry the mark metricsserver" in said
    assert "1 passed, 1 skipped, 4 errors" in said.splitlines()[-1]
