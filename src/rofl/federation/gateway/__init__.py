"""The gateway: a reverse proxy in front of the SuperLink, and the only port of the coordinator that sites reach.

Flower's SuperLink serves everything on one port: the fleet API, which sites need, and the control and runtime APIs,
which start runs, register nodes and hand out tasks to anybody who has the authority's certificate. So the SuperLink
listens on this machine's loopback only, and the gateway forwards the calls that a site needs and nothing else, for
sites that have signed their request with an admitted key.

It is a process of its own, so that strangers cost the coordinator neither time nor memory: `process` starts it,
`program` is what it runs, `server` accepts connections within the limits of `connection_pool`, `admission` checks
signatures, and `forwarding` passes requests on. The program imports neither torch nor the rest of rofl.
"""
