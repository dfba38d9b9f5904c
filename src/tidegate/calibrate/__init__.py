"""`tidegate calibrate`: what are these engines really like?"""
