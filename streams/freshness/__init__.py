"""Finds silent nodes, and distinguishes an outage of nodes from an outage of the pipeline."""
