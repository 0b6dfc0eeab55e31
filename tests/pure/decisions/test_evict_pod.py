"""A pod as eviction sees it."""

from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.evict.evict_tasks import EvictPod, own_resource, own_resources, priority_with_default
from testbed.vectors import stated_test

test_cases = stated_test("evict_pod", priority_with_default, own_resource, own_resources)


def test_a_pod_that_says_nothing_about_eviction_has_not_agreed_to_it() -> None:
    silent = EvictPod(pod=Pod(uid="a", namespace="jobs", name="a"))

    assert not silent.pod.eviction_enabled
    assert (silent.already_evicted, silent.spared, silent.used) == (False, False, None)
    assert (silent.pod.eviction_priority, silent.pod.eviction_features) == (0, None)
