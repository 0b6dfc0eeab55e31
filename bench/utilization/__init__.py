"""A day of a fleet: how busy it gets with batch work, and what that costs its services."""
