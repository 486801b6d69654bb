"""What is done to a client's update before it leaves: privacy, rounding."""
