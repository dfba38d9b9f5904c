"""What did real clients ask for, and when? One module for each published form, and how a load is scaled."""
