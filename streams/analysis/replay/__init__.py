"""Replays a trace through the worker and compares its answers with the recorded ones. Pure."""
