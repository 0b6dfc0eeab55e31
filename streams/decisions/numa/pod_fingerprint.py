"""Computes a fingerprint of a set of pods, independent of their order, by XXH64.

Reading: podfingerprint v0.2.2, podfingerprint.go (format v001); github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import unpack_from

_MASK = 2**64 - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_STRIPE = 32


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the hash as an unsigned 64-bit number."""
    stripes = len(data) // _STRIPE * _STRIPE
    hashed = (_striped(data, stripes, seed) if stripes else seed + _P5) + len(data) & _MASK
    at = stripes
    while at + 8 <= len(data):
        hashed ^= _round(0, unpack_from("<Q", data, at)[0])
        hashed = _rotated(hashed, 27) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= len(data):
        hashed ^= unpack_from("<I", data, at)[0] * _P1 & _MASK
        hashed = _rotated(hashed, 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        hashed = _rotated(hashed ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    return _mixed(hashed)


def _striped(data: bytes, end: int, seed: int) -> int:
    lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed, seed - _P1 & _MASK]
    for at in range(0, end, _STRIPE):
        lanes = [_round(lane, word) for lane, word in zip(lanes, unpack_from("<4Q", data, at), strict=True)]
    hashed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        hashed = (hashed ^ _round(0, lane)) * _P1 + _P4 & _MASK
    return hashed


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _MASK


def _mixed(hashed: int) -> int:
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


PREFIX = "pfp0v001"


def pod_fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods given by namespace and name. Duplicates count."""
    hashes = sorted(xxh64(name.encode(), seed=xxh64(namespace.encode())) for namespace, name in pods)
    return f"{PREFIX}{xxh64(b''.join(one.to_bytes(8, 'little') for one in hashes)):016x}"
