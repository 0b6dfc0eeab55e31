"""Load-aware scheduling and descheduling. Pure."""
