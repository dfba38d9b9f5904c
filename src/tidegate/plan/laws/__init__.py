"""How do requests fare at a rate, whoever asks? Queues, lengths, and the batch they meet: formulas only."""
