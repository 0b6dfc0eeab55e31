"""What one more Job would come to is answered before it is submitted: when it is admitted, and whom it preempts."""

import json

import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli

WITH = """
kind: Job
metadata: {namespace: lab, name: urgent, uid: urgent, creationTimestamp: "2026-03-01T12:01:00Z",
           labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  template:
    spec:
      containers: [{name: main, resources: {requests: {cpu: "4", memory: 1Gi}}}]
"""


@pytest.fixture
def lines(tmp_path) -> list[dict]:
    more = tmp_path / "urgent.yaml"
    more.write_text(WITH)
    done = CliRunner().invoke(cli, ["queue", "simulate", "docs/queue-example.yaml", "--with", str(more), "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_answer_has_the_admission_the_victims_and_what_others_lose(lines) -> None:
    events = [(one["event"], one["workload"]) for one in lines if "event" in one]
    assert ("admitted", "lab/urgent") in events
    assert ("evicted", "office/monthly") in events[: events.index(("admitted", "lab/urgent"))]
