"""What tests of stream workers share: on each broker topics with a policy in force."""

from collections.abc import AsyncIterator

import pytest

from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.samples import SUPPRESS
from testbed.stream_rig import PARTITIONS, Rig


@pytest.fixture
async def rig(broker: EmbeddedBroker | KafkaBroker) -> AsyncIterator[Rig]:
    """Topics with a policy in force."""
    broker.apply_topics(PARTITIONS)
    async with Rig(broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        yield rig
