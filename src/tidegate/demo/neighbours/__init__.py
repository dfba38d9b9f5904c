"""What can one tenant do to the others, and what stops it? The same traffic under three rules."""
