"""The live view of a run: `run_watcher` reads a run folder again and again, `web_app` answers a browser, read-only.

starlette and uvicorn, which are an extra, are imported by `web_app` and `web_server` only.
"""
