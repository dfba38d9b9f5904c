"""By which laws is a workload drawn: when, how long, how much?"""
