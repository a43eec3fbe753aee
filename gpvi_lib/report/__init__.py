"""What shows results: figures, tables, the scoreboard, the notebooks, pages of docs/."""
