"""Best-effort pods run on idle CPUs alone where the policy asks for it, instead of by a weight."""

from slacktide.schemas.policy import Policy
from slacktide.streams.decisions.knobs import wanted
from testbed.policies import policy_from
from testbed.samples import FACTS, PODS

TIER = "tier/besteffort"


def policy(by: str, **cpu: int) -> Policy:
    strategy = {"policies": {"cpuPolicy": by}, "beClass": {"cpuQOS": {"enable": True, **cpu}}}
    return policy_from(qos={"clusterStrategy": strategy})


def held(policy: Policy) -> dict[str, int | None]:
    """What the best-effort tier holds."""
    return {key.knob: one.value for key, one in wanted(FACTS, PODS, policy).items() if key.group == TIER}


def test_the_tier_is_idle_and_its_weight_is_left_alone() -> None:
    assert held(policy("coreSched", schedIdle=1)) == {"cpu_idle": 1}


def test_a_weight_is_the_other_choice() -> None:
    assert held(policy("groupIdentity", groupIdentity=-1)) == {"cpu_shares": 2}
