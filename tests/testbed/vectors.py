"""The cases of each rule, ``tests/vectors/NAME.jsonl``; large files are compressed, ``NAME.jsonl.gz``."""

import gzip
from pathlib import Path

VECTORS = Path(__file__).parent.parent / "vectors"


def lines(name: str) -> list[str]:
    """All cases of a rule, one a line; none where it has no file."""
    plain, packed = VECTORS / f"{name}.jsonl", VECTORS / f"{name}.jsonl.gz"
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode().splitlines()
    return plain.read_text().splitlines() if plain.exists() else []
