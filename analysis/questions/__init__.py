"""Questions about logs and traces: one module per theme, each function DataFrames in, DataFrame out.

``QUESTIONS`` lists them with their columns; ``Logs.ask`` answers one by its name.
"""

from analysis.questions.catalogue import QUESTIONS, Question

__all__ = ["QUESTIONS", "Question"]
