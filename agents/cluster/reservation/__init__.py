"""Holds the room of Reservations by placeholder pods, and gives it to the pods for which they are opened."""
