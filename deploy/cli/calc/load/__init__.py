"""Cases for the rules of load-aware scheduling."""
