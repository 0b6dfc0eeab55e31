"""Dashboards show load-aware scheduling and descheduling, and the nodes behind both."""

import json
from pathlib import Path

import pytest

DASHBOARDS = Path(__file__).parents[2] / "deploy/grafana"
QUERIES = [
    target["expr"]
    for file in sorted(DASHBOARDS.glob("*.json"))
    for panel in json.loads(file.read_text())["panels"]
    for target in panel["targets"]
]


@pytest.mark.parametrize("family", ["slacktide_descheduling_", "slacktide_scheduler_", "slacktide_agent_cpu_milli"])
def test_a_dashboard_shows(family: str) -> None:
    assert any(family in query for query in QUERIES)
