"""What control of best-effort CPU costs a service, and what it leaves of the machine to batch work."""
