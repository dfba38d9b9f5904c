"""What does it look like when it works? An emulated fleet, a real gateway, traffic as it was."""
