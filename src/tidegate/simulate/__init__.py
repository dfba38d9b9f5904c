"""`tidegate simulate`: runs, sweeps and their reports."""
