"""The sections of a run's page. Each module prepares typed values and renders its templates."""
