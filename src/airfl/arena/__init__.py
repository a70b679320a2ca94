"""All schemes side by side: the same data, channels, power, airtime and ε, each tuned with the same small budget.

In: the description of the arena. Out: data, a figure, ranks, verdicts. May import everything but `testing` and
the command line.
"""
