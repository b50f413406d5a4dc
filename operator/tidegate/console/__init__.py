"""The live console: pages that show one or more policies, and what would be, in a browser.

A process of its own, which only reads. NiceGUI is an extra, imported in `server` and `pages` alone.
"""
