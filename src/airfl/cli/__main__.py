"""python -m airfl.cli"""

from airfl.cli import main

main()
