"""How far is the simulator from real engines? `python -m accuracy` replays recorded runs and says."""
