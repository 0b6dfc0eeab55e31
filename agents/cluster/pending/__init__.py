"""Deadlines of pending pods."""
