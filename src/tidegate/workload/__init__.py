"""What comes in? Arrival instants, recorded traces, and the requests planned from them."""
