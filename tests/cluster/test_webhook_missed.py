"""Pods that were created while the webhook was unavailable: they run as they came, and are listed when it is back."""

from contextlib import aclosing
from typing import Any

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.topics import MISSED_POD
from slacktide.streams.kafka import read_topic
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer, RefusedError
from testbed.cluster.webhook import COLOCATED, Webhook
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster

METRIC = "slacktide_webhook_missed_pods"


async def told(broker: EmbeddedBroker) -> list[MissedPod]:
    async with aclosing(read_topic(broker.cluster, MISSED_POD.name)) as records:
        return [decode(record.value, MissedPod) async for record in records]


def events_in(server: ApiServer, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return items


def test_a_namespace_that_requires_the_webhook_takes_no_pod_while_it_is_away(
    admitting: ApiServer, webhook: Webhook
) -> None:
    """By its label. Elsewhere pods are made as they were written; with the webhook back each is changed once."""
    strict = admitting.namespace("strict", COLOCATED | {"slacktide.io/webhook": "required"})
    plain = admitting.namespace("plain", COLOCATED)
    batch_work = {"labels": {"app-type": "batch"}}
    changed = admitting.pod(strict, "before", **batch_work)
    webhook.stop()
    with pytest.raises(RefusedError, match=r"failed calling webhook \"require-pods\.slacktide-webhook"):
        admitting.pod(strict, "refused", **batch_work)
    past = admitting.pod(plain, "past", **batch_work)

    assert changed["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert "koordinator.sh/qosClass" not in past["metadata"]["labels"]


async def test_the_list_names_each_pod_that_came_past_and_no_other(
    admitting: ApiServer, webhook: Webhook, batch: str, embedded_broker: EmbeddedBroker
) -> None:
    embedded_broker.apply_topics()
    batch_work = {"labels": {"app-type": "batch"}}
    admitting.pod(batch, "admitted", **batch_work)
    webhook.stop()
    missed = admitting.pod(batch, "missed", **batch_work)
    admitting.pod(batch, "service", labels={"app": "web"})
    elsewhere = admitting.namespace()
    admitting.pod(elsewhere, "elsewhere", **batch_work)
    back = Webhook(admitting, admitting.folder, bootstrap=embedded_broker.bootstrap)
    back.start()
    try:
        count = eventually(lambda: back.metric(METRIC))
        assert eventually(lambda: "CreatedWithoutWebhook" in str(events_in(admitting, batch)))
        records = await told(embedded_broker)
        said = back.process.log.read_text()
    finally:
        back.stop()

    [event] = [one for one in events_in(admitting, batch) if one["reason"] == "CreatedWithoutWebhook"]
    assert (event["regarding"]["name"], event["type"]) == ("missed", "Warning")
    assert event["reportingController"] == "slacktide.io/webhook"
    assert event["note"].startswith(
        "the webhook was unavailable when the pod was created, so profile batch-workload-profile was not applied: "
        "metadata.labels[koordinator.sh/mutated] is absent, not true; "
    )
    assert event["note"].endswith("create it anew: no controller is known that creates a deleted pod again")

    assert count == len(records), "those of other tests among them"
    [told_of] = [one for one in records if one.namespace in {batch, elsewhere}]
    assert (told_of.pod_uid, told_of.namespace, told_of.name) == (missed["metadata"]["uid"], batch, "missed")
    assert [(one.field, one.wanted, one.found) for one in told_of.lacks] == [
        ("metadata.labels[koordinator.sh/mutated]", "true", None),
        ("metadata.labels[koordinator.sh/qosClass]", "BE", None),
        ("spec.priorityClassName", "koord-batch", None),
        ("spec.schedulerName", "koord-scheduler", "default-scheduler"),
    ]
    assert f"{batch}/missed" in said
