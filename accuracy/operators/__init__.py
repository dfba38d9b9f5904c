"""What do operators reach of an accelerator's figures, measured alone, and does the roofline meet them?"""
