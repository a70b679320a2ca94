"""The paper's figures, tables and claims: publication code, kept apart from the library.

In: committed studies and their results. Out: data, figures, verdicts. May import everything but the command line.
"""
