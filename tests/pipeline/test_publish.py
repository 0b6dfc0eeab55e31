"""``slacktide publish`` as a process: what its files say is in the log, and what changes in them follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import INVENTORY, POLICY
from testbed.audit import records
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import policy
from testbed.parts import Part, running_part

SHIPPED = Path(__file__).parents[2] / "deploy/compose"


@contextmanager
def publishing(bootstrap: str, folder: Path, *arguments: str) -> Iterator[Part]:
    where = ["--bootstrap", bootstrap, "--state-folder", str(folder), "--node-name", "alpha"]
    with running_part(folder, "publish", *where, *arguments) as part:
        yield part
        assert part.stop() == 0, part.last_words()


def thresholds(bootstrap: str) -> list[int]:
    told = records(bootstrap, POLICY, Policy)
    return [each.resource_threshold.cpu_suppress_threshold_pct or 0 for each in told]


def test_policy_and_node_are_in_the_log_and_a_change_follows(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of pods alone the machine is the node."""
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps(policy()))
    at = embedded_broker.bootstrap
    embedded_broker.apply_topics(3)
    with publishing(at, tmp_path, f"--policy={file}", f"--inventory={SHIPPED / 'pods.yaml'}") as part:
        part.wait(lambda: 65 in thresholds(at), "the policy is published")
        [told] = records(at, INVENTORY, NodeInventory)
        assert told.node == "alpha"
        assert told.facts.capacity.cpu_milli

        file.write_text(json.dumps(policy(cpuSuppressThresholdPercent=50)))
        part.wait(lambda: 50 in thresholds(at), "the changed policy is published")

    said = len(records(at, POLICY, Policy))
    with publishing(at, tmp_path, f"--policy={file}", f"--inventory={SHIPPED / 'pods.yaml'}") as part:
        part.wait(lambda: len(records(at, POLICY, Policy)) > said, "the policy is published again")
    ids = {each.installation for each in records(at, POLICY, Policy)}
    assert len(ids) == 1, "the next publisher adopts the id of the topic's first"
    assert ids != {""}
