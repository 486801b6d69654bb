"""The gateway: a reverse proxy in front of the SuperLink, and the coordinator's only port that sites can reach.

Flower's SuperLink serves all its APIs on one port: the fleet API, which sites need, and the control and runtime APIs,
with which anybody who has the authority's certificate could start runs, register nodes and acquire tasks. Therefore the
SuperLink listens on loopback only. The gateway forwards only the calls that a site needs, and only for sites that sign
their requests with an admitted key.

The gateway is a separate process, so that strangers cost the coordinator neither time nor memory. `process` starts it,
`program` is its entry point, `server` accepts connections within the limits of `connection_pool`, `admission` checks
signatures, and `forwarding` forwards requests. The program imports neither torch nor the rest of rofl.
"""
