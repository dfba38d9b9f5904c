"""What did real clients ask for, and when? One module for each published form of a trace."""
