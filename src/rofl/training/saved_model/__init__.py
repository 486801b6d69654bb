"""The model of a finished run, for daily use: load it, predict, evaluate and export. May import what `training` may."""
