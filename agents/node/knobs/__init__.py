"""Knobs of groups beyond the best-effort limit: read, set, kept without a fight, given back."""
