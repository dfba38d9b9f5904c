"""Which limits, queues, gates and deadlines should a plan be served with, and why?"""
