"""Pure rules of load-aware scheduling and descheduling."""
