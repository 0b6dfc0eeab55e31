"""What is told of critical pods in the best-effort tier."""

from slacktide.deploy.cli.explain.node_text import limits_text
from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import Limits
from slacktide.streams.analysis.explain.held import tier_findings
from slacktide.streams.analysis.explain.manifest import lint
from testbed.snapshots import findings
from testbed.vectors import each_row

PROXY = Pod(uid="p", namespace="kube-system", name="kube-proxy-x", priority=2_000_001_000)
JOB = Pod(uid="j", namespace="batch", name="job", qos_label="BE", priority=5_000)


def test_a_node_without_one_has_nothing_to_report() -> None:
    assert list(tier_findings([JOB])) == []


def test_a_critical_pod_is_named_with_what_holds_the_others_and_of_many_some(snapshot) -> None:
    assert findings([*tier_findings([PROXY, JOB]), *tier_findings([PROXY] * 5)]) == snapshot


def test_a_pods_own_explanation_has_the_same() -> None:
    assert {one.name for one in lint(PROXY, None, None)} == {"tier.critical"}
    assert "tier.critical" not in {one.name for one in lint(JOB, None, None)}


@each_row("limits", "told")
def test_a_limit_is_told_by_the_knob_that_holds(limits: Limits, told: str) -> None:
    """While one knob is released step by step, the other one limits."""
    assert limits_text(limits) == told
