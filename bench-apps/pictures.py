#!/usr/bin/env python3
"""Draws results.svg from the table "All six" of RESULTS.md: a group of bars for each application. Needs matplotlib (Debian: python3-matplotlib)."""
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "results", "font.family": "sans-serif", "font.size": 10})
import matplotlib.pyplot as plt

FORMS = ["transparent", "tuned", "custom", "mpi"]
COLOURS = ["#888888", "#6baed6", "#2171b5", "#f0a030"]
LONGEST = 1.5

folder = pathlib.Path(__file__).parent
table = (folder / "RESULTS.md").read_text().split("## All six", 1)[1].split("\nLines of C", 1)[0]
rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
header, rows = rows[0], rows[2:]
columns = [header.index(form) for form in FORMS]

figure, axes = plt.subplots(figsize=(9, 4), facecolor="white")
for place, (form, column, colour) in enumerate(zip(FORMS, columns, COLOURS)):
    values = [float(row[column]) for row in rows]
    at = [number + (place - 1.5) * 0.2 for number in range(len(rows))]
    axes.bar(at, [min(value, LONGEST) for value in values], 0.18, color=colour, label=form)
    for x, value in zip(at, values):
        axes.text(x, min(value, LONGEST) + 0.015, f"{value:.2f}" + (" (cut)" if value > LONGEST else ""), ha="center", va="bottom", fontsize=7)
axes.axhline(1, color="black", linewidth=0.8)
axes.text(len(rows) - 0.45, 1.01, "plain", va="bottom", ha="right", fontsize=8)
axes.set_xticks(range(len(rows)), [row[0].replace(", ", "\n", 1) for row in rows])
axes.set_ylabel("time on two nodes, to plain on one")
axes.set_ylim(0, LONGEST + 0.15)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(ncols=len(FORMS), loc="upper right", frameon=False)
figure.tight_layout()
figure.savefig(folder / "results.svg", metadata={"Date": None})
