"""Forecasts of peaks, and the mid resources that follow from them. Pure."""
