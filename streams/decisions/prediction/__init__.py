"""Forecasts of peaks, and what mid pods may request by them. Pure."""
