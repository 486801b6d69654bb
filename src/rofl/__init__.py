"""Federated learning when labels are wrong."""
