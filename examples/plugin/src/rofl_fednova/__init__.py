"""FedNova, a perceptron and a data set of stripes, as a package that rofl finds by its entry points."""
