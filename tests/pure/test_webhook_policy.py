"""What `kubectl apply` prints of the ConfigMap with the policy, by the webhook's answer."""

import json
from typing import Any, cast

from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook.answers import WARNING_CHARS_MAX, Answers
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.kubernetes.api_server import ApiServer
from testbed.snapshots import situations

POLICY = ConfigMapName(namespace="koordinator-system", name="slo-controller-config")
THRESHOLD = "resource-threshold-config"
KEPT = "the last valid policy stays in force"


async def answered(data: Any, namespace: str = POLICY.namespace, name: str = POLICY.name) -> dict[str, Any]:
    api = cast("ApiServer", None)
    answers = Answers(api, ClusterCache(api, POLICY), (), POLICY, lambda _: None, lambda: 0)
    # As the API server gives it: without a kind of its own where kubectl left it out.
    request = {"uid": "7f", "operation": "UPDATE", "namespace": namespace, "name": name, "object": {"data": data}}
    raw = json.dumps({"apiVersion": "admission.k8s.io/v1", "request": request}).encode()
    response: dict[str, Any] = json.loads(await answers.check_policy(raw))["response"]
    return response


def threshold(**fields: Any) -> dict[str, str]:
    return {THRESHOLD: json.dumps({"clusterStrategy": fields})}


@situations(
    "data",
    {
        "valid": threshold(enable=True, memoryEvictThresholdPercent=70),
        "no data": None,
        "out of range": threshold(enable=True, memoryEvictThresholdPercent=170),
        "no JSON": {"colocation-config": "{"},
        "misspelt": threshold(memoryEvictThreshold=70),
    },
)
async def test_each_error_is_a_warning_and_none_a_refusal(data: Any, snapshot) -> None:
    response = await answered(data)

    assert response["allowed"]
    assert "\n".join(response.get("warnings", [])) == snapshot


async def test_another_config_map_is_none_of_its_business() -> None:
    assert "warnings" not in await answered({"colocation-config": "{"}, namespace="slacktide-system")
    assert "warnings" not in await answered({"colocation-config": "{"}, name="other")


async def test_warnings_are_as_many_and_as_long_as_an_api_server_prints() -> None:
    nodes = [{"name": f"n{number}", "cpuSuppressThresholdPercent": "x" * 400} for number in range(50)]
    told = (await answered({THRESHOLD: json.dumps({"nodeStrategies": nodes})}))["warnings"]

    assert (told[-1], max(map(len, told)) <= WARNING_CHARS_MAX, sum(map(len, told)) <= 4_096) == (KEPT, True, True)
