"""`tidegate plan --html`: all that is told at a terminal, as a page."""
