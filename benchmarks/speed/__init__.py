"""How fast rofl is: six measurements."""
