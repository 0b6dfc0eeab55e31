"""Offline analytics: pure, what the commands of these names compute from records of the log."""
