"""Merges the inputs of concurrent requests into batches, for engines that answer an input as a whole.

Scheduling, tokenising in bounded steps, and input length checks; independent of the library that computes."""
