"""Who asks, and what does each do once it has been answered?"""
