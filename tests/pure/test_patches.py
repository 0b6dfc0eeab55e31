"""The changes to aiokafka: made in each process, and for no other version than they are written for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import aiokafka.client
import pytest
from aiokafka.protocol.metadata import MetadataRequest_v5

from slacktide.streams.kafka import patches

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def test_no_request_for_metadata_creates_a_topic() -> None:
    for made in (aiokafka.client.MetadataRequest(["t"]), aiokafka.admin.client.MetadataRequest(["t"])):
        assert made.build(MetadataRequest_v5).allow_auto_topic_creation is False


@pytest.mark.parametrize("other", ["0.13.0", "0.15.0", "1.0"])
def test_another_version_of_the_client_is_refused_with_what_to_do(other: str) -> None:
    with pytest.raises(ImportError, match=rf'aiokafka {other} is installed.*pip install "aiokafka==0\.14\.\*"'):
        patches.check_version(other)


def test_what_is_installed_is_what_they_are_written_for() -> None:
    patches.check_version(aiokafka.__version__)

    assert "aiokafka>=0.14,<0.15" in PYPROJECT["project"]["dependencies"]
    assert patches.WRITTEN_FOR == "0.14."
