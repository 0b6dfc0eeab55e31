"""Cases for the rules of peak forecasts."""
