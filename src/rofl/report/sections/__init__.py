"""The sections of a run's page, in reading order: each module prepares typed values and renders one template."""
