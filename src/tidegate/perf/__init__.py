"""How long does it take? Measured operators turned into step times."""
