"""Sites that learn together over a network: the coordinator's part and a site's."""
