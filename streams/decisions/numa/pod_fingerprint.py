"""A short text that is equal for equal sets of pods, in whatever order they are listed.

Reading: podfingerprint v0.2.2, podfingerprint.go (format v001).
"""

from __future__ import annotations

from collections.abc import Iterable

from slacktide.streams.decisions.numa.xxh64 import xxh64

PREFIX = "pfp0v001"
"""What this is, and in which format."""


def pod_fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods given by namespace and name. A pod that comes twice counts twice."""
    hashes = sorted(xxh64(name.encode(), seed=xxh64(namespace.encode())) for namespace, name in pods)
    return f"{PREFIX}{xxh64(b''.join(one.to_bytes(8, 'little') for one in hashes)):016x}"
