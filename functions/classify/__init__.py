"""The classify function: labels for texts with their probabilities, from classifiers and NLI models."""
