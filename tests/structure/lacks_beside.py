"""Tests that lack something beside their rung, run by test_rungs.py alone."""

import pytest


@pytest.mark.metricsserver
def test_that_compares() -> None:
    pass


@pytest.mark.kueue
def test_beside_another_queue() -> None:
    pass


@pytest.mark.kcat
def test_that_writes_with_another_client() -> None:
    pass


def test_that_lacks_nothing() -> None:
    pass
