"""How many labels of each client look wrong."""

from collections.abc import Sequence

from rofl.report.audience import ClientNoise
from rofl.report.environment import Section, render


def client_table(clients: Sequence[ClientNoise], judge: str) -> Section:
    """Return the table: samples, suspects with a bar for their share, expected wrong labels, and their bounds.

    The last two are left out where some client's are not known.

    Args:
        clients: a row each; a table of more than 30 rows scrolls in a box.
        judge: the run whose model judged the labels, as the heading names it.
    """
    expected = all(client.expected is not None for client in clients)
    bounds = any(client.interval for client in clients)
    return Section(render("client_table.html.j2", clients=clients, judge=judge, expected=expected, bounds=bounds))
