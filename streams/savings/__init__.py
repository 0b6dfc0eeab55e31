"""Best-effort use beyond what native requests would have admitted, and its cost. Pure."""
