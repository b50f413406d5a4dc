"""The usage report: the traffic of a period by member, its price, and how certain that is.

`request.py` has what goes in and `figures.py` what comes out; `compute.py` turns one into the
other, `period.py` cuts tables and trail for it. `page.py`, `plots.py` and `sheets.py` only show
figures, so that the page, the CSV files and the JSON cannot disagree. `files.py` writes them into a
folder.
"""
