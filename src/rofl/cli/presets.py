"""`rofl presets`: the presets by name."""

from rofl.cli.app import app, print_listing
from rofl.cli.options import Json


@app.command("presets", epilog="Example: rofl presets --json")
def presets_command(as_json: Json = False) -> None:
    """List the presets by name."""
    from rofl.config.presets import PRESETS

    print_listing({name: preset.about for name, preset in PRESETS.items()}, "preset", as_json)
