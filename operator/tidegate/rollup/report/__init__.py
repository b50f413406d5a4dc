"""The usage report: what was used in a period, by whom, at what price, and how sure that is.

`request.py` says what goes in and `figures.py` what comes out; `gathering.py` turns one into the other. `page.py`, `csv_text.py` and
`document.py` only word those figures, so that the page, the CSV files and the JSON cannot disagree. `writing.py` puts them into a folder.
"""
