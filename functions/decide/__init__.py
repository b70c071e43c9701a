"""The decide function: answers to questions of choice, from a model's next-token probabilities."""
