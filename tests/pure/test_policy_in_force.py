"""Which policy is in force: one rule for workers, governors, agents, the bridge and explain."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from slacktide.schemas.codec import encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy import DEFAULT, KEY, InForce, Policy
from testbed.snapshots import situations

PLACE = "slacktide.policy.v1 0:7"


def policy(version: str, epoch: int, installation: str = "a") -> Policy:
    return msgspec.structs.replace(DEFAULT, version=version, writer_epoch=epoch, installation=installation)


def take(policies: InForce, value: Policy | bytes | None, key: str = KEY) -> bool:
    return policies.take(key.encode(), encode(value) if isinstance(value, Policy) else value, PLACE)


@pytest.mark.parametrize(
    ("held", "said", "taken"),
    [
        pytest.param(policy("old", 5), policy("new", 5), True, id="the same writer again"),
        pytest.param(policy("old", 5), policy("new", 6), True, id="a later term"),
        pytest.param(policy("old", 5), policy("new", 4), False, id="a writer that lost its lease"),
        pytest.param(policy("old", 5), policy("new", 1, "b"), True, id="another installation"),
        pytest.param(policy("old", 5, ""), policy("new", 1, "b"), True, id="stored by an older release"),
        pytest.param(policy("old", 5), policy("new", 4, ""), False, id="written by an older release, lower"),
        pytest.param(policy("old", 5), policy("new", 6, ""), True, id="written by an older release, higher"),
        pytest.param(DEFAULT, policy("new", 0, ""), True, id="the first one of all"),
    ],
)
def test_an_epoch_counts_within_its_installation(held: Policy, said: Policy, *, taken: bool) -> None:
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
