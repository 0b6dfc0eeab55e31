"""Explains a node, pod or Job from its records, with the rules in ``decisions``. Pure."""
