"""Which pods in the best-effort tier the tier's quota must not hold."""

from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.streams.decisions.known_pods import is_unsuppressed, known
from testbed.vectors import changed, each_row

BOUGHT = Resources(mid_cpu_milli=500, mid_mem_bytes=1 << 20)
MID = Pod(
    uid="mid",
    namespace="n",
    name="mid",
    qos_label="LS",
    priority=7_500,
    requests=BOUGHT,
    limits=BOUGHT,
    containers=[Container(name="a", requests=BOUGHT, limits=BOUGHT)],
)


@each_row("changes", "unsuppressed")
def test_who_is_not_suppressed(changes: dict, *, unsuppressed: bool) -> None:
    pod = changed(MID, changes)

    assert is_unsuppressed(pod) == unsuppressed
    if pod.kube_qos == "BestEffort":
        assert (pod.uid in known([pod]).best_effort) != unsuppressed
