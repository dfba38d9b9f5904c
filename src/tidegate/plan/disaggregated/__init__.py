"""What if prompts are computed on some replicas and outputs decoded on others?"""
