"""Which pods have resources to themselves."""

from slacktide.streams.decisions.numa.reservations import is_exclusive
from testbed.numa_nodes import GPU, as_read, init, pod


def test_whole_cpus_memory_and_hugepages_of_a_guaranteed_pod_are_exclusive() -> None:
    assert is_exclusive(pod({as_read("cpu"): 2000}), [])
    assert is_exclusive(pod({"memory": 1}), [])
    assert is_exclusive(pod({"hugepages-2Mi": 1}), [])
    assert not is_exclusive(pod({"cpu": 1500, "memory": 0, "hugepages-2Mi": 0}), [])
    assert not is_exclusive(pod({"cpu": 0}), [])
    assert not is_exclusive(pod({"kubernetes.io/batch-cpu": 1000, "ephemeral-storage": 1000, "attachable": 1000}), [])
    assert not is_exclusive(pod({"cpu": 2000, "memory": 1}, qos="Burstable"), [])


def test_a_device_is_exclusive_where_zones_list_it_whatever_the_class_and_the_amount() -> None:
    assert is_exclusive(pod({GPU: 0}, qos="BestEffort"), [GPU])
    assert not is_exclusive(pod({GPU: 1}), ["example.com/other"])


def test_a_sidecar_counts_and_a_plain_init_container_does_not() -> None:
    assert is_exclusive(pod({}, inits=[init({"cpu": 1000}, sidecar=True)]), [])
    assert not is_exclusive(pod({}, inits=[init({"cpu": 1000})]), [])
