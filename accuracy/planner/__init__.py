"""How far off is the planner from real deployments?"""
