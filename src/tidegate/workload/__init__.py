"""What comes in? The requests of a run, planned by laws or from recorded traces."""
