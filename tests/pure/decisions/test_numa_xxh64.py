"""XXH64, by the figures of its specification's test and those of other programs."""

from slacktide.streams.decisions.numa.reservations import xxh64

PRIME32 = 2654435761
PRIME64 = 11400714785074694797


def sanity(length: int) -> bytes:
    """The bytes that the specification's own program hashes."""
    made, state = bytearray(), PRIME32
    for _ in range(length):
        made.append(state >> 56)
        state = state * PRIME64 % 2**64
    return bytes(made)


def test_known_hashes() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"", seed=PRIME32) == 0xAC75FDA2929B17EF
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    assert xxh64(sanity(1)) == 0xE934A84ADB052768
    assert xxh64(sanity(1), seed=PRIME32) == 0x5014607643A9B4C3
    assert xxh64(sanity(4)) == 0x9136A0DCA57457EE
    assert xxh64(sanity(8)) == 0xCDBCF538E71D1348
    assert xxh64(sanity(14)) == 0x8282DCC4994E35C8
    assert xxh64(sanity(14), seed=PRIME32) == 0xC3BD6BF63DEB6DF0
    assert xxh64(sanity(40)) == 0x23B3810D7D8B1731
    assert xxh64(sanity(222)) == 0xB641AE8CB691C174
    assert xxh64(sanity(222), seed=PRIME32) == 0x20CB8AB7AE10C14A


def test_each_length_up_to_three_stripes_hashes_to_64_bits_of_its_own() -> None:
    hashes = {xxh64(bytes(length), seed) for length in range(100) for seed in (0, 2**64 - 1)}

    assert len(hashes) == 200
    assert all(0 <= one < 2**64 for one in hashes)
