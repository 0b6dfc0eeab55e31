"""The alert rules: Prometheus' own tool takes them, each fires when it shall and only then, over metrics that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter

from slacktide.agents.cluster.bridge import metrics as of_bridges
from slacktide.agents.cluster.scheduler import metrics as of_schedulers
from slacktide.agents.node import metrics as of_agents
from slacktide.schemas.topics import TOPICS
from slacktide.streams.analysis.explain.evidence import severity_of
from testbed.prometheus import promtool, served

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
CASES = Path(__file__).with_name("alerts.yaml")
SEVERITIES = {"problem": ("critical", "warning"), "warning": ("warning", "info"), "note": ("info", "info")}
"""Of an alert, by that of its fact: one level less if it is about some nodes, and the others work."""
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]


def test_each_alert_is_over_metrics_that_are_served() -> None:
    named = {name for rule in RULES for name in re.findall(r"\bslacktide_\w+", rule["expr"])}

    assert len(named) >= 8
    assert named <= served()


@pytest.mark.parametrize(
    ("refused", "role", "labels"),
    [
        pytest.param(of_agents.REFUSED, "agent", {"node": "just-begun"}, id="agent"),
        pytest.param(of_bridges.REFUSED, "bridge", {}, id="bridge"),
        pytest.param(of_schedulers.REFUSED, "scheduler", {}, id="scheduler"),
    ],
)
def test_the_first_record_that_is_refused_is_an_increase(refused: Counter, role: str, labels: dict[str, str]) -> None:
    """To Prometheus a counter that begins at 1 has not increased."""
    of_agents.AgentMetrics("just-begun")
    begun = [one.labels for metric in refused.collect() for one in metric.samples if one.name.endswith("_total")]

    for topic in (one.name for one in TOPICS if role in one.consumers):
        assert {**labels, "topic": topic} in begun


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_each_says_how_bad_it_is_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    said = rule["annotations"]
    assert said.keys() == {"summary", "fact", "nodes", "description", "runbook_url"}
    assert said["nodes"] in {"some", "all"}


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_each_is_as_severe_as_its_fact_in_explain_and_the_console(rule: dict[str, Any]) -> None:
    said = rule["annotations"]
    assert rule["labels"]["severity"] == SEVERITIES[severity_of(said["fact"])][said["nodes"] == "some"]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_each_has_a_runbook_of_its_name(rule: dict[str, Any]) -> None:
    runbook = ROOT / rule["annotations"]["runbook_url"]

    assert runbook == ROOT / f"docs/runbooks/{rule['alert']}.md"
    assert re.findall(r"^## .*", runbook.read_text(), re.MULTILINE) == ["## Diagnose", "## Fix"]


@pytest.mark.story
@pytest.mark.prometheus
def test_promtool_takes_them() -> None:
    code, said = promtool("check", "rules", ALERTS)

    assert (code, f"SUCCESS: {len(RULES)} rules found" in said) == (0, True), said


def cases() -> list[dict[str, Any]]:
    """The tests with the description that each alert has: it is said once."""
    annotations = {rule["alert"]: rule["annotations"] for rule in RULES}
    found: list[dict[str, Any]] = yaml.safe_load(CASES.read_text())["tests"]
    for fired in (one for test in found for case in test["alert_rule_test"] for one in _fired(case)):
        name, labels = fired.pop("alertname"), fired["exp_labels"]
        written = re.sub(
            r"{{ \$labels\.(\w+) }}", lambda label, labels=labels: labels[label[1]], annotations[name]["description"]
        )
        kept = {key: annotations[name][key] for key in ("fact", "nodes", "runbook_url")}
        fired["exp_annotations"] |= {"description": written, **kept}
    return found


def _fired(case: dict[str, Any]) -> list[dict[str, Any]]:
    fired: list[dict[str, Any]] = case.get("exp_alerts", [])
    for one in fired:
        one["alertname"] = case["alertname"]
    return fired


@pytest.mark.story
@pytest.mark.prometheus
def test_each_fires_when_it_shall_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "5s", "tests": cases()}))
    code, said = promtool("test", "rules", file)
    assert code == 0, said

    looked_at = [case for test in cases() for case in test["alert_rule_test"]]
    fired = {case["alertname"] for case in looked_at if case.get("exp_alerts")}
    silent = {case["alertname"] for case in looked_at if not case.get("exp_alerts")}
    assert fired == silent == {rule["alert"] for rule in RULES}


@pytest.mark.story
@pytest.mark.prometheus
def test_a_rule_that_is_broken_is_noticed(tmp_path: Path) -> None:
    """The test above would tell: here every threshold is out of reach."""
    broken = tmp_path / "alerts.yaml"
    broken.write_text(re.sub(r"> 0$", "> 1e9", ALERTS.read_text(), flags=re.MULTILINE))
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(broken)], "evaluation_interval": "5s", "tests": cases()}))

    assert promtool("test", "rules", file)[0] == 1
