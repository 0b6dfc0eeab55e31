"""Pods that were created while the webhook was away: they run as they came, and are listed when it is back."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.topics import MISSED_POD
from slacktide.streams.kafka import read_topic
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer
from testbed.cluster.webhook import Webhook
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster

METRIC = "slacktide_webhook_missed_pods"


async def told(broker: EmbeddedBroker) -> list[MissedPod]:
    async with aclosing(read_topic(broker.cluster, MISSED_POD.name)) as records:
        return [decode(record.value, MissedPod) async for record in records]


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
        records = await told(embedded_broker)
        said = back.process.log.read_text()
    finally:
        back.stop()

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
