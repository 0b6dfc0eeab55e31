"""Computes best-effort use beyond the use that native requests would have admitted, and its cost. Pure."""
