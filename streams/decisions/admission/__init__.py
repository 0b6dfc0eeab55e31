"""Pure rules that change or reject new pods."""
