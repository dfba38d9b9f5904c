"""`tidegate plan --emit`: the plan as files that `serve` and `simulate` take."""
