"""What is true of accelerators and models? Every figure with its source and its date."""
