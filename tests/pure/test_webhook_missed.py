"""Pods that were created past the webhook: which are found, and which are not taken for such."""

from typing import Any

import msgspec

from slacktide.agents.cluster.webhook.missed import label_selector, lacked
from slacktide.agents.cluster.webhook.mutation import changed_ms, dated, namespace_of
from slacktide.agents.kubernetes.objects import Pod
from slacktide.schemas.policy.selector import Requirement, Selector
from testbed.scenarios import plain, scenarios
from testbed.vectors import each_row


def test_a_change_counts_and_a_change_of_status_does_not() -> None:
    before, then, after = (f"2026-11-21T10:00:0{second}Z" for second in (1, 2, 3))
    made = {"name": "p", "creationTimestamp": before}
    managed = [{"time": then}, {"time": after, "subresource": "status"}]

    assert changed_ms({"metadata": made | {"managedFields": managed}}) - changed_ms({"metadata": made}) == 1_000


@each_row("requirement", "text")
def test_a_requirement_is_written_as_the_api_server_reads_it(requirement: Requirement, text: str) -> None:
    assert label_selector(Selector(match_expressions=(requirement,))) == text


def test_all_requirements_are_asked_for_together() -> None:
    both = Selector(match_labels={"a": "1", "b": "2"}, match_expressions=(Requirement(key="c", operator="Exists"),))

    assert label_selector(both) == "a=1,b=2,c"


@scenarios("webhook_missed")
def test_what_a_pod_lacks(case: dict[str, Any]) -> None:
    """A pod as it is stored, the profiles with their times, and what these set that it has not."""
    pod, profiles = msgspec.convert(case["pod"], Pod), [dated(one) for one in case["profiles"]]
    found = lacked(pod, namespace_of(case["namespace"]), profiles)

    assert plain(found) == case["gives"]
    assert pod.controller.kind == case.get("owner", "")
