"""What ``slacktide doctor`` says of a cluster that is older, or of a token that is worth less, than evictions need."""

import base64
import json
from dataclasses import replace

from slacktide.deploy.cli.doctor.agent_checks import api_findings
from slacktide.deploy.cli.doctor.facts import API_RIGHTS, KUBELET_PODS, KUBELET_PROXY, ApiFacts, TokenFacts
from slacktide.deploy.cli.doctor.machine_facts import token_facts
from testbed.snapshots import checks, situations
from testbed.vectors import each_row

GOOD = ApiFacts(
    url="https://10.96.0.1:443",
    version="v1.34.4",
    minor=34,
    token=TokenFacts(pod="slacktide-system/slacktide-agent-x", node="node-1"),
    rights=dict.fromkeys(API_RIGHTS, True) | {KUBELET_PROXY: False},
)


def rights(*given: str) -> dict:
    return dict(GOOD.rights) | dict.fromkeys((KUBELET_PODS, KUBELET_PROXY), False) | dict.fromkeys(given, True)


@situations(
    "facts",
    {
        "all that is needed": GOOD,
        "before tokens named nodes, evictions are refused": replace(
            GOOD, version="v1.29.3", minor=29, token=TokenFacts(pod=GOOD.token.pod, node=""),
            rights=rights(KUBELET_PODS, KUBELET_PROXY),
        ),
        "1.33, pods of the kubelet": replace(GOOD, version="v1.33.0", minor=33, rights=rights(KUBELET_PODS)),
        "1.33, its proxy is not enough": replace(GOOD, version="v1.33.0", minor=33, rights=rights(KUBELET_PROXY)),
        "1.32, pods of the kubelet are not enough: the opt-in is named with what it costs": replace(
            GOOD, version="v1.32.0", minor=32, rights=rights(KUBELET_PODS)
        ),
        "1.32, its proxy": replace(GOOD, version="v1.32.0", minor=32, rights=rights(KUBELET_PROXY)),
    },
)  # fmt: skip
def test_what_is_said_of_a_cluster(facts: ApiFacts, snapshot) -> None:
    assert checks(api_findings(facts)) == snapshot


def token(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


@each_row("given", "expected")
def test_what_a_token_says_is_read_and_nothing_else_is_trusted(given: str, expected: TokenFacts) -> None:
    assert token_facts(given) == expected
