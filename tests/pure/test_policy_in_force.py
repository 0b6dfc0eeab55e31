"""Which policy is in force: one rule for workers, governors, agents, the bridge and explain."""

import contextlib

import msgspec
import pytest

from slacktide.schemas.codec import encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy import DEFAULT, KEY, InForce, Policy
from testbed.snapshots import situations
from testbed.vectors import each_row

PLACE = "slacktide.policy.v1 0:7"


def policy(version: str, epoch: int, installation: str = "a") -> Policy:
    return msgspec.structs.replace(DEFAULT, version=version, writer_epoch=epoch, installation=installation)


def take(policies: InForce, value: Policy | bytes | None, key: str = KEY) -> bool:
    return policies.take(key.encode(), encode(value) if isinstance(value, Policy) else value, PLACE)


@each_row("held", "said", "taken")
def test_an_epoch_counts_within_its_installation(held: list | None, said: list, *, taken: bool) -> None:
    held, said = policy(*held) if held else DEFAULT, policy(*said)
    policies = InForce(held)

    assert take(policies, said) is taken
    assert policies.policy == (said if taken else held)
    assert (not policies.refused, policies.by_epoch) == (taken, not taken)


@situations("value", {"a lower epoch": policy("late", 4), "a null": None, "no policy": b"{"})
def test_what_is_refused_changes_nothing_and_is_an_error_until_a_policy_comes(value: object, snapshot) -> None:
    """It names its place and what to do; another epoch is to blame only where there is one."""
    policies = InForce(policy("held", 5))
    with contextlib.suppress(BadMessageError):
        assert not take(policies, value)
    assert (policies.policy.version, policies.by_epoch) == ("held", isinstance(value, Policy))
    assert policies.refused == snapshot
    assert take(policies, policy("held", 5))
    assert policies.refused == ""


@pytest.mark.parametrize("value", [None, b"{}"])
def test_a_record_of_another_key_replaces_no_policy(value: bytes | None) -> None:
    policies = InForce(policy("held", 5))
    with contextlib.suppress(BadMessageError):
        take(policies, value, key="other")

    assert (policies.policy.version, policies.refused) == ("held", "")
