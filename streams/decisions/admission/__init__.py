"""What admission changes or refuses of new pods. Pure."""
