"""Recorded days under a grid of policies: what each gives best-effort pods, and what it risks. Pure."""
