"""Tests that skip themselves, run by test_rungs.py alone: its name keeps pytest from finding it."""

import pytest

from testbed.rungs import machine_cannot


def test_that_could_run() -> None:
    pytest.skip("a part is missing")


def test_that_could_never_run() -> None:
    machine_cannot("there is no such kernel")


@pytest.mark.xfail(reason="known", strict=True)
def test_that_fails_as_it_says() -> None:
    raise ValueError


def test_that_runs() -> None:
    pass
