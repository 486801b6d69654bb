"""One bad site of five: what it can send, and what becomes of the model (`python -m benchmarks.attacks`)."""
