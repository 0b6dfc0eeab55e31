"""Evictions on the node: credit, who is on the way out, who is held back for want of credit."""
