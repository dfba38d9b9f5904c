"""How much to buy, and which limits to set? Closed forms only."""
