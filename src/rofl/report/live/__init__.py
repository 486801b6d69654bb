"""The live view of a run: `run_watcher` polls a run folder, and `web_app` serves it to a browser, read-only.

Only `web_app`, `web_server` and `page_connections` import starlette and uvicorn, which are an optional extra.
"""
