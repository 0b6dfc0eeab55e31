"""What was recorded, decided again: a trace goes through the very worker, and its answers are compared. Pure."""
