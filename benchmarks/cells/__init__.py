"""Finished runs of presets on real images, kept as small JSON files, and the tables and curves made of them."""
