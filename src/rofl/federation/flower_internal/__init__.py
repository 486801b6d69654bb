"""Every import of flwr that is not its public interface: a new version of Flower is this folder's work."""
