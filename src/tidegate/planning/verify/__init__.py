"""`tidegate plan --verify`: does the simulation say what the plan says?"""
