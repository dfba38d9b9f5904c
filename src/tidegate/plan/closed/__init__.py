"""What do clients meet who send their next request when the last one is answered?"""
