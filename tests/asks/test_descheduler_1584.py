"""A dry run of descheduling lands each pod: the room that one takes is gone for the next."""

from slacktide.agents.cluster.descheduler.passes import Cluster, Passes, Place
from slacktide.schemas.inventory import NodeFacts, Resources
from testbed.descheduled import GIB, descheduled, metric, pod_object
from testbed.policies import policy_from

PODS = [f"pod-{number}" for number in range(10)]
EACH_MILLI = 8_000
SOLD_MILLI = EACH_MILLI + EACH_MILLI // 2
"""Room for one of them, and a half."""


def test_of_ten_pods_that_fit_one_by_one_a_dry_run_names_the_one_that_fits_beside_the_others() -> None:
    cluster = Cluster()
    for name, cpus in (("full", 100), ("free", 100)):
        sold = {"batch_cpu_milli": SOLD_MILLI, "batch_mem_bytes": 100 * GIB}
        amounts = Resources(cpu_milli=cpus * 1_000, mem_bytes=200 * GIB, **sold)
        cluster.node(Place(facts=NodeFacts(name=name, capacity=amounts, allocatable=amounts), takes_pods=True))
    wants = {"kubernetes.io/batch-cpu": str(EACH_MILLI), "kubernetes.io/batch-memory": str(GIB)}
    spec = {"containers": [{"name": "main", "resources": {"requests": wants, "limits": wants}}]}
    for name in PODS:
        cluster.changed(descheduled(pod_object(name, "full", spec=spec)))
    metrics = {
        "full": metric("full", {f"uid-{name}": EACH_MILLI for name in PODS}),
        "free": metric("free", {}, system=1_000),
    }
    band = {"lowThresholds": {"cpu": 40}, "highThresholds": {"cpu": 50}, "dryRun": True}
    policy = policy_from(descheduling=band | {"anomalyCondition": {"consecutiveAbnormalities": 1}})

    done = Passes(1).next(cluster, metrics.get, policy, 1_000.0, 1_700_000_000_000)

    assert done.dry_run
    assert len(done.victims) == 1
