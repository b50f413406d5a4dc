"""The usage report and the bill: a period's traffic by member, its price, and how certain it is.

`request.py` has what goes in, `figures.py` what comes out and in which columns; `compute.py` turns
one into the other, `period.py` cuts tables and trail for it. `page.py`, `plots.py` and `sheets.py`
only show figures, so that the page, the CSV files and the JSON cannot disagree. `rate_card.py` and
`charges.py` make the bill, `closing.py` keeps it, `focus.py` writes it for cost tools.
"""
