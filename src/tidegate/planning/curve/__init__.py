"""`tidegate plan --curve`: latency over load, drawn in characters and told in words."""
