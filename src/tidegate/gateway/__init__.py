"""What happens? The data plane: it reads requests, asks the governor, and carries out its commands."""
