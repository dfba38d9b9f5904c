"""`tidegate plan compare`: how do two configurations differ, and what does that do?"""
