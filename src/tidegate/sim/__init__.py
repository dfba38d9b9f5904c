"""What would happen? Replicas, network and clients in simulated time, driving the gateway's own governor."""
