"""The stack in Docker: a daemon of its own, images under their official names, and compose."""
