"""What node-bound proofs cost a worker: samples with proofs in their headers, and the check alone."""

import base64
import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from bench import log
from bench.rows import Row, judged
from bench.stamp import Stamped
from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import CURRENT, ClusterKey, NodeKey, Verifier, node_key

KEY = base64.b64encode(bytes(range(32))).decode()
EXPIRES_S = 4_000_000_000
TARGET_US = 3.0
ROUNDS = 5
REQUIRED: Policy = msgspec.structs.replace(log.POLICY_IN_FORCE, node_proof="required")


def arguments(folder: Path) -> list[str]:
    """What gives a worker the cluster key."""
    keys = folder / "proof-keys"
    keys.mkdir(exist_ok=True)
    (keys / CURRENT).write_text(KEY)
    return ["--proof-keys", str(keys)]


def proven(records: Sequence[Stamped]) -> list[Stamped]:
    """The samples as agents sign them."""
    cluster, keys = ClusterKey.of(KEY), dict[bytes, NodeKey]()
    found = []
    for one in records:
        key = keys.get(one.key) or keys.setdefault(one.key, node_key(cluster, one.key.decode(), EXPIRES_S))
        found.append(replace(one, headers=[*one.headers, key.header(one.topic, one.value)]))
    return found


def check(records: Sequence[Stamped]) -> Row:
    """CPU time of one check, in the best of some rounds: what else the machine does is not its cost."""
    verifier = Verifier([ClusterKey.of(KEY)])
    best_us = float("inf")
    for _ in range(ROUNDS + 1):  # the first one derives the nodes' keys
        began_s = time.thread_time()
        for one in records:
            assert verifier.check(one.topic, one.key, one.value, one.headers, one.at_ms) == "ok"
        best_us = min(best_us, (time.thread_time() - began_s) / len(records) * 1e6)
    bytes_each = sum(len(one.value) for one in records) / len(records)
    hash_us = _hash_us(records)
    return judged(
        "check of a node-bound proof, a sample",
        f"<= {TARGET_US:g} us",
        f"{best_us:.2f} us of CPU, of which SHA-256 alone {hash_us:.2f} us; {bytes_each:.0f} B a sample",
        met=best_us <= TARGET_US,
        n=len(records),
        us=best_us,
        hash_us=hash_us,
    )


def _hash_us(records: Sequence[Stamped]) -> float:
    """The least that any check over the whole body costs."""
    best_us = float("inf")
    for _ in range(ROUNDS):
        began_s = time.thread_time()
        for one in records:
            hashlib.sha256(one.value).digest()
        best_us = min(best_us, (time.thread_time() - began_s) / len(records) * 1e6)
    return best_us
