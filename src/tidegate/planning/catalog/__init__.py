"""`tidegate catalog`: which models and accelerators are known, and what of them?"""
