"""What ``slacktide doctor`` says of a cluster that is older, or of a token that is worth less, than evictions need."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from slacktide.deploy.cli.doctor.agent_checks import api_findings
from slacktide.deploy.cli.doctor.agent_facts import token_facts
from slacktide.deploy.cli.doctor.facts import API_RIGHTS, KUBELET_PODS, KUBELET_PROXY, ApiFacts, TokenFacts
from slacktide.deploy.cli.doctor.finding import Finding

GOOD = ApiFacts(
    url="https://10.96.0.1:443",
    version="v1.34.4",
    minor=34,
    token=TokenFacts(pod="slacktide-system/slacktide-agent-x", node="node-1"),
    rights=dict.fromkeys(API_RIGHTS, True) | {KUBELET_PROXY: False},
)


def of(facts: ApiFacts) -> dict[str, Finding]:
    return {one.check.removeprefix("api."): one for one in api_findings(facts)}


def bad(facts: ApiFacts) -> list[str]:
    return [name for name, one in of(facts).items() if one.verdict != "ok"]


def test_of_a_cluster_that_has_all_nothing_is_advised() -> None:
    assert bad(GOOD) == []


def test_before_tokens_named_nodes_evictions_are_refused_and_that_is_said() -> None:
    nameless = TokenFacts(pod=GOOD.token.pod, node="")
    old = replace(GOOD, version="v1.29.3", minor=29, token=nameless, rights=dict(GOOD.rights) | {KUBELET_PROXY: True})

    assert bad(old) == ["version", "token"]
    assert of(old)["version"].found == "Kubernetes v1.29.3"
    assert "only throttled and frozen" in of(old)["version"].advice
    assert of(old)["token"].found == "bound to pod slacktide-system/slacktide-agent-x, but without the name of its node"


@pytest.mark.parametrize(
    ("minor", "right", "expected"),
    [
        (33, KUBELET_PODS, []),
        (33, KUBELET_PROXY, ["right-to-list-pods"]),
        (32, KUBELET_PODS, ["right-to-list-pods"]),
        (32, KUBELET_PROXY, []),
    ],
)
def test_which_right_the_kubelet_asks_for_goes_by_its_version(minor: int, right, expected: list[str]) -> None:
    rights = dict(GOOD.rights) | {KUBELET_PODS: False, KUBELET_PROXY: False} | {right: True}

    assert bad(replace(GOOD, version=f"v1.{minor}.0", minor=minor, rights=rights)) == expected


def test_the_opt_in_for_older_kubelets_is_named_with_what_it_costs() -> None:
    advice = of(replace(GOOD, version="v1.32.0", minor=32))["right-to-list-pods"].advice

    assert "deploy/kubernetes/components/kubelet-before-1.33" in advice
    assert "commands in pods" in advice


def token(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            token({"kubernetes.io": {"namespace": "a", "pod": {"name": "p"}, "node": {"name": "n"}}}),
            TokenFacts(pod="a/p", node="n"),
        ),
        (token({"kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "s"}}}), TokenFacts(pod="", node="")),
        (token({"sub": "somebody"}), TokenFacts(pod="", node="")),
        (token([]), TokenFacts(pod="", node="")),
        ("not-a-jwt", TokenFacts(pod="", node="")),
        ("a.%%%.c", TokenFacts(pod="", node="")),
        ("", TokenFacts(pod="", node="")),
    ],
)
def test_what_a_token_says_is_read_and_nothing_else_is_trusted(given: str, expected: TokenFacts) -> None:
    assert token_facts(given) == expected
