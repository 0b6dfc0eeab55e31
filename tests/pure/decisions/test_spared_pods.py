"""Which pods in the best-effort tier the tier's quota must not hold."""

from __future__ import annotations

import msgspec
import pytest

from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.streams.decisions.known_pods import is_unsuppressed, known

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


@pytest.mark.parametrize(
    ("changes", "unsuppressed"),
    [
        pytest.param({}, True, id="a mid pod with a limit"),
        pytest.param({"qos_label": "BE"}, False, id="not one of class BE"),
        pytest.param({"priority": 5_500}, False, id="not a batch pod that asks for mid resources"),
        pytest.param({"containers": [Container(name="a", requests=BOUGHT)]}, False, id="not one without a limit"),
        pytest.param({"containers": []}, False, id="not one of unknown containers"),
        pytest.param({"init_unlimited": True}, False, id="not one whose init container has no limit"),
        pytest.param({"requests": Resources()}, False, id="not one that bought nothing"),
        pytest.param({"kube_qos": "Burstable"}, False, id="not one outside the tier"),
        pytest.param({"priority": 2_000_000_000, "requests": Resources()}, True, id="the least critical pod"),
        pytest.param({"priority": 1_999_999_999, "requests": Resources()}, False, id="not one below that"),
        pytest.param({"priority": 2_000_001_000, "requests": Resources(), "containers": []}, True, id="a critical pod"),
        pytest.param({"priority": 2_000_000_000, "qos_label": None}, True, id="nor does a critical one need a label"),
        pytest.param({"priority": 2_000_000_000, "qos_label": "BE"}, False, id="not a critical one of class BE"),
        pytest.param({"priority": 2_000_000_000, "kube_qos": "Burstable"}, False, id="nor a critical one outside"),
        pytest.param({"qos_label": None}, True, id="a mid pod without a label"),
        pytest.param({"priority": 9_500}, False, id="not a production pod that asks for mid resources"),
    ],
)
def test_who_is_not_suppressed(changes: dict, *, unsuppressed: bool) -> None:
    pod = msgspec.structs.replace(MID, **changes)

    assert is_unsuppressed(pod) == unsuppressed
    if pod.kube_qos == "BestEffort":
        assert (pod.uid in known([pod]).best_effort) != unsuppressed
