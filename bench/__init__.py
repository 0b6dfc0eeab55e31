"""The figures that the project promises, measured on this machine."""
