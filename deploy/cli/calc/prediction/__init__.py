"""Cases for the rules of forecasts of peaks."""
