"""Selects pods to evict when CPU or memory is short. Pure."""
