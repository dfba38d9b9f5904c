"""What do we decide? One file per mechanism, independent of each other; only the governor composes them."""
