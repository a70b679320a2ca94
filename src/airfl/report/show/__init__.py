"""What commands print for people, a file per command, so that each loads only what it shows.

In: results and findings. Out: tables and sentences on the terminal. May import the rest of ``report``.
"""
