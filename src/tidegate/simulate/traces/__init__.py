"""What does `tidegate trace` say of a trace? It simulates nothing."""
