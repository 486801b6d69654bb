"""The saved model of a run: load it, predict, evaluate and export. May import what `training` may."""
