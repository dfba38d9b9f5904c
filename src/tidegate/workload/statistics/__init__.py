"""What does a recorded load look like, in numbers?"""
