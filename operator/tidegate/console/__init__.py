"""The web console: pages that show policies as they are now, and what-if scenarios, in a browser.

A process of its own, which only reads. NiceGUI is an extra, imported in `server` and `pages` alone.
"""
