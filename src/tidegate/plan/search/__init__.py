"""Which deployment serves a load within its budgets at the least cost?"""
