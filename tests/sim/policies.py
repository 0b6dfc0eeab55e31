"""What the operator may ask for: one asks more of some nodes, and the last one suppresses nothing."""

from slacktide.schemas.policy import Policy
from testbed.policies import policy_from

POOLS = ("odd", "even")


BUDGET = {"clusterMax": 6, "nodeMax": 3, "namespaceMax": 6, "intervalSeconds": 20, "leaseSeconds": 6}
MEMORY = {"memoryEvictThresholdPercent": 60, "memoryEvictLowerPercent": 40}


def _policy(*on_nodes: dict, enable: bool = True, **said: int | str) -> Policy:
    return policy_from(
        budget=BUDGET,
        colocation={"enable": True, "metricAggregateDurationSeconds": 30},
        threshold={
            "clusterStrategy": {"enable": enable, "cpuSuppressPolicy": "cfsQuota", **said},
            "nodeStrategies": [
                {"name": pool, "nodeSelector": {"matchLabels": {"pool": pool}}, **own}
                for pool, own in zip(POOLS, on_nodes, strict=False)
            ],
        },
    )


POLICIES = [
    _policy(**MEMORY),
    _policy({"cpuSuppressThresholdPercent": 30, "cpuSuppressMinPercent": 5}, {"enable": False}),
    _policy(cpuSuppressThresholdPercent=90, cpuSuppressMinPercent=10, **MEMORY),
    _policy(MEMORY, {"memoryEvictThresholdPercent": 80}, cpuSuppressPolicy="cpuset"),
    _policy({"cpuSuppressPolicy": "cpuset", "cpusetMinCPUs": 1}, cpuSuppressThresholdPercent=50),
    _policy(enable=False),
]
