"""What shows results: figures, tables, the scoreboard, the notebooks, README."""
