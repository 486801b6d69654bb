"""Training among sites that are far apart, carried by Flower."""
