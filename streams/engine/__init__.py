"""Runs the worker and the governor on Kafka."""
