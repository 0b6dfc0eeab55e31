"""Computes a fingerprint of a set of pods, independent of their order.

Reading: podfingerprint v0.2.2, podfingerprint.go (format v001).
"""

from __future__ import annotations

from collections.abc import Iterable

from slacktide.streams.decisions.numa.xxh64 import xxh64

PREFIX = "pfp0v001"


def pod_fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods given by namespace and name. Duplicates count."""
    hashes = sorted(xxh64(name.encode(), seed=xxh64(namespace.encode())) for namespace, name in pods)
    return f"{PREFIX}{xxh64(b''.join(one.to_bytes(8, 'little') for one in hashes)):016x}"
