"""What Strimzi is given: the table of topics and each part's rights, and nothing beside them."""

from typing import Any

import yaml
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.schemas.access import PARTS
from slacktide.schemas.topics import TOPICS


def printed(*options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(cli, ["topics", "strimzi", "--cluster", "prod", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def of(kind: str, *options: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in printed(*options) if each["kind"] == kind}


def test_every_topic_is_there_with_its_partitions_and_settings() -> None:
    assert of("KafkaTopic") == {
        topic.name: {
            "partitions": topic.partitions,
            "replicas": topic.replication,
            "config": topic.config(topic.replication),
        }
        for topic in TOPICS
    }


def test_one_broker_can_keep_one_replica_of_each() -> None:
    specs = of("KafkaTopic", "--replicas", "1").values()

    assert {(spec["replicas"], spec["config"]["min.insync.replicas"]) for spec in specs} == {(1, "1")}


def test_each_part_has_the_rights_that_acl_prints_and_no_others() -> None:
    users = of("KafkaUser")

    assert {f"User:{name}" for name in users} == {part.principal for part in PARTS}
    for part in PARTS:
        acls = users[part.principal.removeprefix("User:")]["authorization"]["acls"]
        granted = [
            (operation, acl["resource"]["type"], acl["resource"].get("name", "kafka-cluster"))
            for acl in acls
            for operation in acl["operations"]
        ]
        assert sorted(granted) == sorted((acl.operation, acl.resource, acl.name) for acl in part.acls)
        assert {acl["resource"].get("patternType", "literal") for acl in acls} == {"literal"}


def test_a_quota_is_for_the_agents_alone() -> None:
    users = of("KafkaUser", "--agent-quota", "2000000", "20000000", "--agent-request-percent", "200")

    assert {name: spec["quotas"] for name, spec in users.items() if "quotas" in spec} == {
        "slacktide-agent": {"producerByteRate": 2_000_000, "consumerByteRate": 20_000_000, "requestPercentage": 200}
    }
    assert of("KafkaUser", "--agent-request-percent", "50")["slacktide-agent"]["quotas"] == {"requestPercentage": 50}


def test_all_belong_to_the_named_cluster() -> None:
    assert {each["metadata"]["labels"]["strimzi.io/cluster"] for each in printed()} == {"prod"}
