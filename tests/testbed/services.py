"""Profiles of services as the learner publishes them, and their records."""

from collections.abc import Sequence
from typing import Any

from slacktide.schemas.codec import encode
from slacktide.schemas.policy import Colocation, ResourceThreshold, policy_of
from slacktide.schemas.policy.strategies import LearnedCaps
from slacktide.schemas.service import Bin, LatencyFit, NodeSums, ServiceProfile, ServiceSlope
from slacktide.schemas.topics import POLICY, SERVICE_PROFILE, SERVICE_SLOPE
from slacktide.streams.records import Record
from testbed.samples import START_MS

WEB = "shop/web"
NEWEST_MS = START_MS - 40_000
SUMS = [
    NodeSums(node="alpha", until_ms=NEWEST_MS, minutes=500.0, mean_minutes=500.0, mean_x=0.3, mean_u=0.7, mean_y=0.2,
             mean_z=0.2, xx=20.0, xy=13.0, xz=0.1, uu=30.0, uy=15.0, uz=0.1, yy=9.0, yz=0.1, zz=1.0)
]  # fmt: skip


def slope(service: str = WEB, slope_permille: int = 640) -> ServiceSlope:
    return ServiceSlope(service=service, slope_permille=slope_permille, observed_ms=NEWEST_MS - 29_000_000,
                        partition=5, folded_to=80_100)  # fmt: skip


def profile(service: str = WEB, **given: Any) -> ServiceProfile:
    """One that is learned: half of a node of best-effort work slows the service down by 38%."""
    measured = [(310.5, 2.0), (204.0, 98.5), (61.2, 160.0), (33.0, 231.0), (12.4, 288.0), (5.1, 340.0), (0.0, 0.0)]
    fields: dict[str, Any] = {
        "observed_ms": NEWEST_MS,
        "folded_from": 1_024,
        "folded_to": 88_213,
        "status": "learned",
        "slope_permille": 644,
        "low_permille": 540,
        "high_permille": 757,
        "alone_permille": 1_062,
        "node_hours": 41.5,
        "nodes": 12,
        "published": slope(service),
        "bins": [Bin(minutes=minutes, mean_permille=mean) for minutes, mean in [*measured, *[(0.0, 0.0)] * 3]],
        "sums": SUMS,
    }
    return ServiceProfile(service=service, **fields | given)


LEARNING: dict[str, Any] = {
    "status": "learning", "slope_permille": 910, "low_permille": 110, "high_permille": 1_710, "node_hours": 3.2,
    "nodes": 2, "published": None,
}  # fmt: skip
INSENSITIVE: dict[str, Any] = {
    "status": "insensitive", "slope_permille": 40, "low_permille": -20, "high_permille": 100, "published": None,
}  # fmt: skip


def of_latency(**given: Any) -> dict[str, Any]:
    """What a profile has of a learned latency: 4 ms alone, and 82% more with half of a node."""
    fields: dict[str, Any] = {
        "status": "learned", "slope_permille": 1_200, "low_permille": 1_050, "high_permille": 1_360,
        "alone_us": 4_012.5, "target_us": 8_000, "node_hours": 38.2, "nodes": 9, "sums": SUMS,
    }  # fmt: skip
    return {"latency": LatencyFit(**fields | given), "signal": "latency"}


LATENCY: dict[str, Any] = of_latency() | {"published": slope(slope_permille=1_180)}


def services(mode: LearnedCaps | None, profiles: Sequence[ServiceProfile], **given: Any) -> list[Record]:
    """Records of profiles, of their published slopes, and of a policy; ``mode`` None: there is none."""
    found = []
    if mode is not None:
        policy = policy_of(Colocation(enable=True, learned_caps=mode, **given), ResourceThreshold(enable=True))
        found.append(_record(POLICY.name, b"policy", encode(policy), 0))
    for number, one in enumerate(profiles):
        key = one.service.encode()
        found.append(_record(SERVICE_PROFILE.name, key, encode(one), number, 5))
        if one.published is not None:
            found.append(_record(SERVICE_SLOPE.name, key, encode(one.published), number))
    return found


def _record(topic: str, key: bytes, value: bytes, offset: int, partition: int = 0) -> Record:
    return Record(topic=topic, partition=partition, offset=offset, timestamp_ms=START_MS - 30_000, key=key, value=value)
