"""What other schedulers, such as YARN, hold of a node's batch resources."""

import json

import msgspec
import pytest

from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.third_party import ANNOTATION
from slacktide.streams.analysis.explain.node import NodeExplanation, explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from testbed.chains import Chain
from testbed.samples import FACTS, START_MS

SELLING = policy_of(Colocation(enable=True, metric_aggregate_duration_s=10), ResourceThreshold())


def explained(text: str | None) -> NodeExplanation:
    annotations = {} if text is None else {ANNOTATION: text}
    chain = Chain(SELLING, msgspec.structs.replace(FACTS, annotations=annotations))
    now_ms = chain.run(1, 12)
    return explain_node(node_log(chain.node, chain.records), now_ms or START_MS + 12_100)


def yarn(cpu: str, memory: str, priority: str = "koord-batch") -> str:
    amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    return json.dumps({"allocations": [{"name": "hadoop-yarn", "priority": priority, "resources": amounts}]})


@pytest.mark.parametrize(
    ("text", "milli", "mebibytes"),
    [
        pytest.param(yarn("300", "1Gi"), 300, 1024, id="subtracted"),
        pytest.param(yarn("1M", "1Ti"), None, None, id="more than there is"),
        pytest.param(yarn("300", "1Gi", "koord-prod"), 0, 0, id="of another class"),
        pytest.param('{"allocations": []}', 0, 0, id="nothing held"),
        *(
            pytest.param(text, None, None, id=f"unreadable: {text[:9]} of {len(text)}")
            for text in ("[" * 5_000, "{", yarn("-1", "0"), yarn("9" * 70_000, "0"))
        ),
    ],
)
def test_what_others_hold_is_not_offered(text: str, milli: int | None, mebibytes: int | None) -> None:
    """None: all of it."""
    before, after = (
        {one.of: one.published or 0 for one in explained(each).figures if one.of.startswith("batch")}
        for each in (None, text)
    )
    cpu, mem = before["batch_cpu_milli"], before["batch_mem_bytes"]

    assert min(cpu, mem) > 0
    assert after["batch_cpu_milli"] == (0 if milli is None else cpu - milli)
    assert after["batch_mem_bytes"] == (0 if mebibytes is None else mem - (mebibytes << 20))


def test_explain_names_who_holds_what() -> None:
    texts = [
        next(one.text for one in explained(text).findings if one.name == name)
        for text, name in ((yarn("300", "1Gi"), "batch.third-party"), ("{", "batch.unreadable"))
    ]

    assert texts[0].startswith("hadoop-yarn hold batch-cpu 300m and batch-memory 1,024 MiB by the annotation")
    assert texts[1].startswith("no batch resources are offered, since what other schedulers hold is unknown")
