"""What best-effort pods used beyond what native requests would have admitted, and what it cost. Pure."""
