"""What a queue does from event to event, and a simulation of it."""

import json

import pytest

from slacktide.deploy.cli.calc.forms import converted
from testbed.queue_events import EventsInput, SimulationInput, replay, simulated
from testbed.vectors import stated


@pytest.mark.parametrize(("given", "expected"), list(stated("queue_scheduling")))
def test_each_event_leads_to_what_the_case_says(given: dict, expected: list) -> None:
    played = list(replay(converted(given, EventsInput)))
    assert json.loads(json.dumps(played)) == expected


@pytest.mark.parametrize(("given", "expected"), list(stated("queue_simulation")))
def test_a_simulation_ends_as_the_case_says(given: dict, expected: dict) -> None:
    played = simulated(converted(given, SimulationInput))
    assert json.loads(json.dumps(played)) == expected
