"""The quota that Kueue is to go by, where a ClusterQueue's quota is a share of what is sold."""

from slacktide.schemas.queue import OfferedSpec
from slacktide.streams.decisions.queue.flavor_match import effective_groups

ASKS = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": "50"}
OFFERED = {"spot": OfferedSpec(cpu_milli=9_001, memory_bytes=4_097)}


def groups(**quotas: dict[str, object]) -> list[dict]:
    flavors = [
        {"name": name, "resources": [{"name": each, "nominalQuota": amount} for each, amount in of.items()]}
        for name, of in quotas.items()
    ]
    return [{"coveredResources": ["cpu"], "flavors": flavors}]


def test_what_is_sold_takes_the_place_of_nominal_quotas_and_all_else_stays() -> None:
    given = groups(
        spot={"cpu": 1, "memory": "1Gi", "kubernetes.io/batch-cpu": 7, "nvidia.com/gpu": 8}, solid={"cpu": 3}
    )
    given[0]["flavors"][0]["resources"][0]["lendingLimit"] = "1"
    found = effective_groups(given, ASKS, OFFERED, "a")
    assert found is not None
    first, second = found[0]["flavors"]
    assert first["resources"] == [
        {"name": "cpu", "nominalQuota": "4500m", "lendingLimit": "1"},
        {"name": "memory", "nominalQuota": "2048"},
        {"name": "kubernetes.io/batch-cpu", "nominalQuota": "4500"},
        {"name": "nvidia.com/gpu", "nominalQuota": 8},
    ]
    assert second == {"name": "solid", "resources": [{"name": "cpu", "nominalQuota": 3}]}, "nothing is known of it"
    assert found[0]["coveredResources"] == ["cpu"]


def test_an_equal_quota_stays_as_it_is_written() -> None:
    given = groups(spot={"cpu": "4.5", "memory": "2Ki"})
    assert effective_groups(given, ASKS, OFFERED, "a") == given
    assert effective_groups(groups(spot={"cpu": "many"}), ASKS, OFFERED, "a") == groups(spot={"cpu": "4500m"})


def test_without_the_annotation_nothing_is_written() -> None:
    assert effective_groups(groups(spot={"cpu": 1}), {"slacktide.io/quota-percent": "50"}, OFFERED, "a") is None
